package lance_io.spark;

import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;

/**
 * The table of a statement WITH SCHEMA EVOLUTION between two calls of Spark's analysis.
 *
 * <p>Spark alters the table, and loads it again for the statement. Here nothing is altered before the statement commits:
 * the second call gets the table as it will be. So a statement that fails, or is only explained, leaves nothing behind.
 */
final class Evolution {
  private static final String RULES = "org.apache.spark.sql.catalyst.analysis.";
  private static final String RULE = "SchemaEvolution"; // in the names of its classes, in all releases

  private record Pending(Identifier identifier, Table table) {}

  private final ThreadLocal<Pending> pending = new ThreadLocal<>();

  /** Whether the analysis of a statement, and not an ALTER TABLE, calls. */
  static boolean isRunning() {
    return StackWalker.getInstance()
        .walk(frames -> frames.map(StackWalker.StackFrame::getClassName)
            .anyMatch(name -> name.startsWith(RULES) && name.contains(RULE)));
  }

  void put(Identifier identifier, Table table) {
    pending.set(new Pending(identifier, table));
  }

  /** The table that waits for this call, once; null if there is none. */
  Table take(Identifier identifier) {
    Pending waiting = pending.get();
    if (waiting == null) {
      return null;
    }
    pending.remove();
    return waiting.identifier().equals(identifier) && isRunning() ? waiting.table() : null;
  }
}
