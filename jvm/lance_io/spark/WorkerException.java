package lance_io.spark;

import java.io.IOException;

/** A request that failed while Spark planned. */
final class WorkerException extends RuntimeException {
  private static final long serialVersionUID = 1;

  WorkerException(String message, IOException cause) {
    super(message, cause);
  }
}
