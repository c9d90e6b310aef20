package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/**
 * Requests to the worker of this JVM, a Python process that does all reading and writing.
 *
 * <p>There is one worker for the whole JVM, although sessions with artifacts load this class once each: the class loader
 * of a session has its own static fields. So the process is kept in the properties of the system, as a map that holds
 * classes of the JDK only.
 */
final class Worker {
  static final ObjectMapper JSON = new ObjectMapper();

  private static final String KEY = "lance_io.worker";

  private Worker() {}

  /** JSON of a text; null for null. */
  static JsonNode parsed(String text) {
    try {
      return text == null ? NullNode.getInstance() : JSON.readTree(text);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  /** A request of this kind, to be filled in. */
  static ObjectNode request(String operation) {
    return JSON.createObjectNode().put("op", operation);
  }

  /** Sends a request and returns its answer. Where the worker has ended, a new one answers. */
  static JsonNode ask(String python, ObjectNode request) {
    try {
      try {
        return askOnce(python, request);
      } catch (WorkerEndedException e) {
        return askOnce(python, request); // such requests may be made twice; the end of a second worker is reported
      }
    } catch (IOException e) {
      throw new WorkerException(e.getMessage(), e);
    }
  }

  /** Sends a request, which nothing repeats, and returns its answer. */
  static JsonNode askOnce(String python, ObjectNode request) throws IOException {
    try (Call call = open(python, request)) {
      return call.answer();
    }
  }

  /** Sends a request. The caller reads its answer, and closes the call, which also cancels it. */
  static Call open(String python, ObjectNode request) throws IOException {
    Call call = new Call(running(python));
    try {
      call.send(request);
    } catch (IOException e) {
      call.close();
      throw e;
    }
    return call;
  }

  /** The running worker, which the first call starts, and the first call after its end starts again. */
  private static WorkerProcess running(String python) throws IOException {
    Map<String, Object> state = state();
    synchronized (state) {
      WorkerProcess worker = WorkerProcess.of(state);
      if (worker != null && worker.isAlive()) {
        if (!worker.python().equals(python)) {
          throw new IOException(
              "this JVM's lance_io worker runs " + worker.python() + ", and a read asks for " + python
                  + ": give all catalogs and reads the same option python");
        }
        return worker;
      }
      return WorkerProcess.start(python, state);
    }
  }

  @SuppressWarnings("unchecked") // only this class stores under the key
  private static Map<String, Object> state() {
    synchronized (System.class) {
      return (Map<String, Object>) System.getProperties().computeIfAbsent(KEY, key -> new HashMap<String, Object>());
    }
  }
}
