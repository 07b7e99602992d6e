/* Random single-byte reads over a byte array in the JVM, and the random draw alone: a JMH benchmark of the shape that
 * Shipilev published ("Transparent Huge Pages", JVM Anatomy Quarks). Run through experiments/hugepages/jmh.py. */

package tlb;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class ByteArrayTouch {

    /* Two states, because JMH repeats a benchmark for each parameter of its states: the draw alone has no array. */
    @State(Scope.Benchmark)
    public static class Bytes {
        @Param("1000")
        public int size;

        byte[] bytes;

        @Setup
        public void allocate() throws IOException {
            bytes = new byte[size];
            saveSmaps("before");
        }

        @TearDown
        public void look() throws IOException {
            saveSmaps("after");
        }

        /* All at once: a file under /proc has no length to copy by. */
        private void saveSmaps(String when) throws IOException {
            String name = size + "-" + ProcessHandle.current().pid() + "-" + when + ".smaps";
            Files.write(Path.of(name), Files.readAllBytes(Path.of("/proc/self/smaps")));
        }
    }

    @State(Scope.Benchmark)
    public static class Bound {
        @Param("1000")
        public int bound;
    }

    @Benchmark
    public byte touch(Bytes array) {
        return array.bytes[ThreadLocalRandom.current().nextInt(array.size)];
    }

    @Benchmark
    public int draw(Bound range) {
        return ThreadLocalRandom.current().nextInt(range.bound);
    }
}
