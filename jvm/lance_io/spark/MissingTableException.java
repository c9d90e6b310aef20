package lance_io.spark;

/** There is no table at a path. */
final class MissingTableException extends IllegalArgumentException {
  private static final long serialVersionUID = 1;

  MissingTableException(String message) {
    super(message);
  }
}
