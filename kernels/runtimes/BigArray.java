// BigArray: one large array in Java, with the heap as everybody has it or on huge pages; random reads of single bytes, timed.
// The contract is that of big_array.c, with one difference: Java tells nobody where an array is, so "address" is null.
//
// The program is the same for all: the recipe is a flag of the virtual machine, and it holds for the whole heap, not for
// one array. Java 17 has no public way to advise the kernel on one region; from Java 22 on java.lang.foreign can call madvise.
//
// [recipe]
// java -XX:+UseTransparentHugePages BigArray
// [end]
//
// [pool]
// java -XX:+UseLargePages -XX:LargePageSizeInBytes=2m BigArray
// [end]
import java.lang.ref.Reference;
import java.util.Arrays;

final class BigArray {
    static final int BATCHES = 9;
    static final int ACCESSES = 1 << 20;
    static long x = 88172645463325252L;

    static long read(byte[] array) {
        long state = x, pages = array.length >> 12, sum = 0;
        for (int i = 0; i < ACCESSES; i++) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            sum += array[(int) ((((state >>> 32) * pages) >>> 32) << 12 | (state & 4095))];
        }
        x = state;
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2 || !java.util.Set.of("plain", "huge", "pool").contains(arguments[0])) {
            System.exit(2);
        }
        byte[] array = new byte[Integer.parseInt(arguments[1])];
        Arrays.fill(array, (byte) 1);
        long sum = 0;
        long[] batchNs = new long[BATCHES];
        for (int batch = 0; batch < BATCHES; batch++) {
            long begin = System.nanoTime();
            sum += read(array);
            batchNs[batch] = System.nanoTime() - begin;
        }
        System.out.println("{\"language\": \"java\", \"variant\": \"" + arguments[0] + "\", \"array_bytes\": " + array.length
            + ", \"address\": null, \"accesses\": " + ACCESSES + ", \"sum\": " + sum
            + ", \"batch_ns\": " + Arrays.toString(batchNs) + "}");
        System.in.read();
        Reference.reachabilityFence(array);
    }
}
