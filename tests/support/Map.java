import java.nio.file.*;
import java.util.*;

public class Map {
    public static void main(String[] words) throws Exception {
        HashMap<Integer, Integer> map = new HashMap<>();
        for (int i = 0; i < 1000000; i++)
            map.put(i, i);
        for (String line : Files.readAllLines(Path.of("/proc/self/smaps_rollup")))
            if (line.startsWith("AnonHugePages:"))
                System.out.println("huge=" + line.replaceAll("[^0-9]", ""));
        System.exit(map.size() == 1000000 ? 0 : 1);
    }
}
