package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkFiles;

/**
 * The Python process behind this JVM.
 *
 * <p>A line of JSON goes each way when it starts, with the versions of both sides. Its standard input then stays open
 * for as long as the JVM lives: the worker ends when it closes, so that it never outlives a JVM that was killed.
 */
final class WorkerProcess {
  private static final int PROTOCOL = 1;
  private static final int START_SECONDS = Integer.getInteger("lance_io.startSeconds", 30);
  private static final long LATE_NANOS = TimeUnit.SECONDS.toNanos(60);
  private static final String LATE = "late"; // a Python that was not ready in time, when that was, and the message
  private static final int KEPT_CHARACTERS = 2000; // of what it writes to its standard error, for messages

  private final Map<String, Object> state;

  private WorkerProcess(Map<String, Object> state) {
    this.state = state;
  }

  /** The process of a state; null if none was started. */
  static WorkerProcess of(Map<String, Object> state) {
    return state.containsKey("process") ? new WorkerProcess(state) : null;
  }

  String python() {
    return (String) state.get("python");
  }

  boolean isAlive() {
    return process().isAlive();
  }

  private Process process() {
    return (Process) state.get("process");
  }

  /** The secret that requests carry. It goes to the process by its standard input, which no other user can read. */
  String token() {
    return (String) state.get("token");
  }

  /** A new connection. */
  SocketChannel connect() throws IOException {
    SocketAddress address = (SocketAddress) state.get("address");
    try {
      if (address instanceof UnixDomainSocketAddress) {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        channel.connect(address);
        return channel;
      }
      return SocketChannel.open(address);
    } catch (IOException e) {
      throw explain(e);
    }
  }

  /** An error that says how the process ended, if it has; otherwise the given one. */
  IOException explain(IOException error) {
    try {
      if (!process().waitFor(2, TimeUnit.SECONDS)) { // a connection may break before the system reports the end
        return error;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return error;
    }
    return new WorkerEndedException(ended(process(), (StringBuffer) state.get("errors")), error);
  }

  private static String ended(Process process, StringBuffer errors) {
    int code = process.exitValue();
    String how = code > 128 ? "signal " + (code - 128) : "exit code " + code;
    return "the lance_io worker of executor " + executor() + " ended with " + how + tail(errors);
  }

  private static String executor() {
    SparkEnv env = SparkEnv.get();
    return env == null ? "(none)" : env.executorId();
  }

  private static String tail(StringBuffer errors) {
    String text = errors.toString().strip();
    return text.isEmpty() ? "" : "; it wrote: " + text;
  }

  // -- start ----------------------------------------------------------------------------------------------------------

  /** Starts a process and stores it in the state. */
  static WorkerProcess start(String python, Map<String, Object> state) throws IOException {
    checkNotLate(python, state);
    StringBuffer errors = new StringBuffer();
    Process process;
    try {
      process = command(python).start();
    } catch (IOException e) {
      throw new IOException(notStarted(python, e.getMessage()), e);
    }
    String token = newToken();
    try {
      copyErrors(process.getErrorStream(), errors);
      say(process.getOutputStream(), token);
      SocketAddress address = address(hear(process, python, errors, state), python);
      state.putAll(
          Map.of("process", process, "python", python, "address", address, "token", token, "errors", errors));
    } catch (IOException | RuntimeException e) {
      process.destroyForcibly();
      throw e;
    }
    return new WorkerProcess(state);
  }

  /** Refuses a Python that has just failed to get ready: the other tasks, and all retries, would wait as long, in line. */
  private static void checkNotLate(String python, Map<String, Object> state) throws IOException {
    if (state.get(LATE) instanceof List<?> late
        && late.get(0).equals(python)
        && System.nanoTime() - (Long) late.get(1) < LATE_NANOS) {
      throw new IOException((String) late.get(2));
    }
  }

  private static ProcessBuilder command(String python) {
    List<String> paths = new ArrayList<>();
    String program = python;
    if (SparkEnv.get() != null) {
      File root = new File(SparkFiles.getRootDirectory());
      File archived = new File(root, python);
      if (python.startsWith("./") && !new File(python).exists() && archived.exists()) {
        program = archived.getPath(); // an archive that Spark unpacked beside the files of the application
      }
      paths.add(root.getPath()); // modules of addPyFile
      File[] files = root.listFiles((folder, name) -> name.matches(".*\\.(zip|egg|whl)"));
      for (File file : files == null ? new File[0] : files) {
        paths.add(file.getPath());
      }
    }
    ProcessBuilder builder = new ProcessBuilder(program, "-m", "lance_io.spark.worker");
    String given = builder.environment().get("PYTHONPATH");
    if (given != null && !given.isEmpty()) {
      paths.add(given);
    }
    builder.environment().put("PYTHONPATH", String.join(File.pathSeparator, paths));
    return builder;
  }

  /** Says the versions of this side and the token. */
  private static void say(OutputStream input, String token) throws IOException {
    ObjectNode hello = Worker.JSON.createObjectNode();
    hello.put("protocol", PROTOCOL);
    hello.put("jar", Release.version());
    hello.put("token", token);
    hello.put("cpus", cpus());
    try {
      input.write((hello + "\n").getBytes(StandardCharsets.UTF_8));
      input.flush();
    } catch (IOException e) {
      // It has ended already: its answer, or the lack of one, says why.
    }
  }

  /** Processors of the tasks of this JVM. */
  private static int cpus() {
    int available = Runtime.getRuntime().availableProcessors();
    SparkEnv env = SparkEnv.get();
    String cores = env == null ? "" : env.conf().get("spark.executor.cores", "");
    return cores.matches("[1-9]\\d{0,5}") ? Math.min(available, Integer.parseInt(cores)) : available;
  }

  /** The answer of the process, once it is ready. */
  private static JsonNode hear(Process process, String python, StringBuffer errors, Map<String, Object> state)
      throws IOException {
    CompletableFuture<String> line = new CompletableFuture<>();
    daemon("lance_io-hello", () -> {
      try {
        BufferedReader output =
            new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        line.complete(output.readLine());
      } catch (IOException e) {
        line.completeExceptionally(e);
      }
    });
    String text;
    try {
      text = line.get(START_SECONDS, TimeUnit.SECONDS);
      if (text == null) {
        process.waitFor(2, TimeUnit.SECONDS);
        throw new IOException(notStarted(python, process.isAlive() ? "it said nothing" : ended(process, errors)));
      }
    } catch (TimeoutException e) {
      String message = notStarted(python, "it was not ready after " + START_SECONDS + " seconds");
      state.put(LATE, List.of(python, System.nanoTime(), message));
      throw new IOException(message, e);
    } catch (ExecutionException e) {
      throw new IOException(notStarted(python, e.getCause().getMessage()), e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IOException(notStarted(python, "the task was interrupted"), e);
    }
    return Worker.JSON.readTree(text);
  }

  /** Where the process listens, if it is of this version. */
  private static SocketAddress address(JsonNode answer, String python) throws IOException {
    if (answer.hasNonNull("error")) {
      throw new IOException(notStarted(python, answer.get("error").asText()));
    }
    String version = answer.path("package").asText("unknown");
    if (!version.equals(Release.version()) || answer.path("protocol").asInt() != PROTOCOL) {
      throw new IOException(
          "the JAR is of lance_io " + Release.version() + ", and " + python + " on " + host() + " has lance_io " + version
              + ": install the same version on all machines, and use the JAR of that package");
    }
    if (answer.hasNonNull("socket")) {
      return UnixDomainSocketAddress.of(answer.get("socket").asText());
    }
    return new InetSocketAddress(InetAddress.getLoopbackAddress(), answer.get("port").asInt());
  }

  private static String notStarted(String python, String reason) {
    return "the lance_io worker did not start on " + host() + " with Python " + python + " (" + reason
        + "). The option python of the catalog or read, or spark.pyspark.python, names a Python that has lance_io";
  }

  private static String host() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (IOException e) {
      return "this machine";
    }
  }

  private static String newToken() {
    byte[] bytes = new byte[24];
    new SecureRandom().nextBytes(bytes);
    return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
  }

  /** Copies what the process writes to the JVM's own standard error, and keeps its end. */
  private static void copyErrors(InputStream from, StringBuffer kept) {
    daemon("lance_io-stderr", () -> {
      byte[] bytes = new byte[8192];
      try {
        for (int size = from.read(bytes); size >= 0; size = from.read(bytes)) {
          System.err.write(bytes, 0, size);
          System.err.flush();
          kept.append(new String(bytes, 0, size, StandardCharsets.UTF_8));
          kept.delete(0, Math.max(0, kept.length() - KEPT_CHARACTERS));
        }
      } catch (IOException e) {
        // The process has ended.
      }
    });
  }

  private static void daemon(String name, Runnable work) {
    Thread thread = new Thread(work, name);
    thread.setDaemon(true);
    thread.start();
  }
}
