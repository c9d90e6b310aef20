package lance_io.spark;

import java.io.IOException;

/** The worker ended while a request was under way. */
final class WorkerEndedException extends IOException {
  private static final long serialVersionUID = 1;

  WorkerEndedException(String message, IOException cause) {
    super(message, cause);
  }
}
