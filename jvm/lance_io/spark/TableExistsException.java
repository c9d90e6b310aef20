package lance_io.spark;

/** There is a table where one was to be created. */
final class TableExistsException extends RuntimeException {
  private static final long serialVersionUID = 1;

  TableExistsException(String message) {
    super(message);
  }
}
