import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Drives Redisson, as bench/README.md says of all drivers. */
public final class Driver {
  /** A broken lock asks nobody for one waiter of so many. */
  private static final int BROKEN_ONE_OF = 8;

  private static final int MEASURING = 1;
  private static final int OVER = 2;

  private final Map<String, String> arguments = new HashMap<>();
  private final Records records;
  private final Function<String, RLock> locks;
  private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
  private final boolean oneKey;
  private final AtomicInteger inside = new AtomicInteger();
  private final AtomicLong acquired = new AtomicLong();
  private volatile int phase;

  public static void main(String[] words) throws Exception {
    Driver driver = new Driver(words);
    // Scripts are loaded, connections made.
    RLock first = driver.locks.apply("bench-warm-up");
    first.lock();
    first.unlock();
    say("\"event\":\"ready\"");
    if (driver.text("work").equals("stand-by")) {
      driver.standBy();
    } else {
      driver.run();
    }
    // Whoever still waits for a lock is not waited for.
    Runtime.getRuntime().halt(0);
  }

  private Driver(String[] words) throws Exception {
    for (int at = 0; at + 1 < words.length; at += 2) {
      arguments.put(words[at].substring(2), words[at + 1]);
    }
    records = new Records(text("record"));
    oneKey = text("work").equals("key");
    Config config = new Config();
    config.useSingleServer().setAddress(text("url"));
    if (number("ttl-ms") > 0) {
      config.setLockWatchdogTimeout(number("ttl-ms"));
    }
    RedissonClient client = Redisson.create(config);
    locks = text("peer").equals("redisson-fair") ? client::getFairLock : client::getLock;
  }

  private String text(String name) {
    return arguments.get(name);
  }

  private int number(String name) {
    return Integer.parseInt(text(name));
  }

  /** A line for the runner. */
  private static synchronized void say(String fields) {
    System.out.println("{" + fields + "}");
    System.out.flush();
  }

  private static void pause(long nanos) {
    long until = System.nanoTime() + nanos;
    for (long left = nanos; left > 0; left = until - System.nanoTime()) {
      LockSupport.parkNanos(left);
    }
  }

  private static long ownCpu() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private void run() throws Exception {
    List<Task> tasks = new ArrayList<>();
    for (int task = 0; task < number("tasks"); task++) {
      tasks.add(new Task(task));
    }
    lines.readLine();
    tasks.forEach(Thread::start);
    Thread.sleep(number("warm-ms"));
    say("\"event\":\"measuring\"");
    long started = System.nanoTime();
    long cpu = ownCpu();
    phase = MEASURING;
    Thread.sleep(number("measured-ms"));
    phase = OVER;
    long taken = System.nanoTime() - started;
    cpu = ownCpu() - cpu;
    long patience = System.nanoTime() + 5_000_000_000L;
    while (inside.get() > 0 && System.nanoTime() < patience) {
      Thread.sleep(1);
    }
    long grants = 0;
    long handoffs = 0;
    long held = 0;
    long errors = 0;
    String firstError = "";
    long[] acquire = new long[Task.BUCKETS];
    long[] handoff = new long[Task.BUCKETS];
    StringJoiner turns = new StringJoiner(",", "[", "]");
    for (Task task : tasks) {
      synchronized (task) {
        grants += task.grants;
        handoffs += task.handoffs;
        held += task.held;
        errors += task.errors;
        firstError = firstError.isEmpty() ? task.firstError : firstError;
        turns.add(Long.toString(task.grants));
        for (int bucket = 0; bucket < Task.BUCKETS; bucket++) {
          acquire[bucket] += task.acquire[bucket];
          handoff[bucket] += task.handoff[bucket];
        }
      }
    }
    say(
        String.format("\"event\":\"result\",\"seconds\":%d.%09d", taken / 1_000_000_000, taken % 1_000_000_000)
            + ",\"cpu_ns\":" + cpu + ",\"acquired\":" + acquired + ",\"grants\":" + grants
            + ",\"handoffs\":" + handoffs + ",\"held_ns\":" + held + ",\"gave_up\":0"
            + ",\"errors\":" + errors
            + ",\"first_error\":\"" + firstError.replaceAll("[^\\w .:,;()/-]", "'") + "\""
            + ",\"turns\":" + turns
            + ",\"acquire\":" + shown(acquire) + ",\"handoff\":" + shown(handoff));
  }

  private static String shown(long[] histogram) {
    StringJoiner shown = new StringJoiner(",", "[", "]");
    for (int bucket = 0; bucket < histogram.length; bucket++) {
      if (histogram[bucket] > 0) {
        shown.add("[" + bucket + "," + histogram[bucket] + "]");
      }
    }
    return shown.toString();
  }

  /** Takes a lock again and again, for a time. Its figures are of the time that is measured. */
  private final class Task extends Thread {
    /** Of times by powers of two, each in 32 parts. */
    static final int BUCKETS = 32 * 50;

    final RLock lock;
    final int slot;
    final int who;
    long grants;
    long handoffs;
    long held;
    long errors;
    String firstError = "";
    final long[] acquire = new long[BUCKETS];
    final long[] handoff = new long[BUCKETS];

    Task(int task) {
      setDaemon(true);
      slot = oneKey ? 0 : task;
      who = number("first") + task;
      lock = locks.apply("bench-" + slot);
    }

    @Override
    public void run() {
      long hold = number("hold-us") * 1000L;
      long pause = number("pause-us") * 1000L;
      boolean asks = !(number("broken") == 1 && (who + 1) % BROKEN_ONE_OF == 0);
      while (phase != OVER) {
        long asked = System.nanoTime();
        try {
          if (asks) {
            lock.lock();
          }
        } catch (RuntimeException error) {
          fail(error);
          Driver.pause(10_000_000);
          continue;
        }
        inside.incrementAndGet();
        int during = phase;
        if (during == OVER) {
          inside.decrementAndGet();
          return;
        }
        Records.Inside entered = records.enter(slot, who);
        if (hold > 0) {
          Driver.pause(hold);
        } else if (oneKey) {
          // Others may come in here, if the lock lets them.
          Thread.yield();
        }
        long lasted = records.leave(slot, who, entered);
        acquired.incrementAndGet();
        inside.decrementAndGet();
        if (during == MEASURING) {
          see(entered, lasted, entered.at() - asked);
        }
        try {
          if (asks) {
            lock.unlock();
          }
        } catch (RuntimeException error) {
          fail(error);
        }
        if (pause > 0) {
          Driver.pause(pause);
        }
      }
    }

    private synchronized void see(Records.Inside entered, long lasted, long waited) {
      grants++;
      held += lasted;
      acquire[bucket(waited)]++;
      if (entered.handedOver() >= 0) {
        handoffs++;
        handoff[bucket(entered.handedOver())]++;
      }
    }

    private synchronized void fail(RuntimeException error) {
      errors++;
      firstError = firstError.isEmpty() ? error.toString() : firstError;
    }

    private static int bucket(long nanos) {
      double bucket = Math.log(Math.max(nanos, 1)) / Math.log(2) * 32;
      return (int) Math.min(bucket, BUCKETS - 1);
    }
  }

  /** One lock, taken and released on command: its process, or the one before it, is killed. */
  private void standBy() throws Exception {
    RLock lock = locks.apply("bench-0");
    int who = number("first");
    Records.Inside entered = null;
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      if (line.equals("acquire")) {
        lock.lock();
        entered = records.enter(0, who);
        say("\"event\":\"acquired\",\"at_ns\":" + entered.at());
      } else if (line.equals("release")) {
        records.leave(0, who, entered);
        long at = System.nanoTime();
        lock.unlock();
        say("\"event\":\"released\",\"at_ns\":" + at);
      }
    }
  }

  /**
   * What a lock protects: a number in a file, read on entering and written on leaving.
   *
   * <p>Whoever overlaps with another overwrites what the other counted: the number is then lower
   * than the number of acquisitions, which the runner compares.
   */
  private static final class Records {
    /** Bytes from one key's record to the next. */
    private static final int SLOT = 64;

    private static final VarHandle LONGS =
        MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private final ByteBuffer map;

    /** What was read on entering; handedOver is -1 if the same left last. */
    record Inside(long count, long at, long handedOver) {}

    Records(String path) throws Exception {
      try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
        MappedByteBuffer mapped =
            file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, file.length());
        map = mapped.order(ByteOrder.LITTLE_ENDIAN);
      }
    }

    Inside enter(int slot, int who) {
      long count = (long) LONGS.getAcquire(map, slot * SLOT);
      long last = (long) LONGS.getAcquire(map, slot * SLOT + 8);
      long left = (long) LONGS.getAcquire(map, slot * SLOT + 16);
      long at = System.nanoTime();
      boolean other = last != 0 && last != who + 1;
      return new Inside(count, at, other ? Math.max(at - left, 0) : -1);
    }

    /** Returns how long it was held. */
    long leave(int slot, int who, Inside inside) {
      long left = System.nanoTime();
      LONGS.setRelease(map, slot * SLOT + 8, (long) who + 1);
      LONGS.setRelease(map, slot * SLOT + 16, left);
      LONGS.setRelease(map, slot * SLOT, inside.count() + 1);
      return left - inside.at();
    }
  }
}
