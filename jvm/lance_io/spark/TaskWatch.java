package lance_io.spark;

import java.io.IOException;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;

/**
 * Closes the calls of tasks that Spark has killed.
 *
 * <p>Spark marks such a task and lets it notice; it interrupts the thread only where it is configured to. A task that
 * waits for the worker would not notice before the next batch.
 */
final class TaskWatch {
  private static final int PERIOD_MS = 100;
  private static final Map<Call, TaskContext> CALLS = new ConcurrentHashMap<>();
  private static Thread thread;

  private TaskWatch() {}

  static void add(Call call) {
    TaskContext task = TaskContext.get();
    if (task == null) {
      return;
    }
    CALLS.put(call, task);
    synchronized (TaskWatch.class) {
      if (thread == null) {
        thread = new Thread(TaskWatch::watch, "lance_io-tasks");
        thread.setDaemon(true);
        thread.start();
      }
    }
  }

  static void remove(Call call) {
    CALLS.remove(call);
  }

  private static void watch() {
    while (true) {
      for (Iterator<Map.Entry<Call, TaskContext>> calls = CALLS.entrySet().iterator(); calls.hasNext(); ) {
        Map.Entry<Call, TaskContext> entry = calls.next();
        if (!entry.getValue().isInterrupted()) {
          continue;
        }
        calls.remove();
        try {
          entry.getKey().close();
        } catch (IOException e) {
          // It is closed for its reader in any case.
        }
      }
      synchronized (TaskWatch.class) {
        if (CALLS.isEmpty()) {
          thread = null; // the next task starts it again; an idle executor has no thread of ours
          return;
        }
      }
      try {
        Thread.sleep(PERIOD_MS);
      } catch (InterruptedException e) {
        // No one interrupts it: it goes on for the tasks that are left.
      }
    }
  }
}
