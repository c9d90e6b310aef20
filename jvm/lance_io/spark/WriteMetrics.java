package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a commit did, for Spark's user interface. */
final class WriteMetrics {
  private WriteMetrics() {}

  static CustomMetric[] supported() {
    return ShownNumber.areFound() ? numbers() : new CustomMetric[0];
  }

  private static Counted[] numbers() {
    return new Counted[] {new Version(), new Inserted(), new Updated(), new Deleted(), new Bytes()};
  }

  /** The values of a commit, by the answer of Python; none before there is one. */
  static CustomTaskMetric[] of(JsonNode committed) {
    Counted[] numbers = committed == null || !ShownNumber.areFound() ? new Counted[0] : numbers();
    CustomTaskMetric[] values = new CustomTaskMetric[numbers.length];
    for (int i = 0; i < numbers.length; i++) {
      values[i] = new ShownNumber.Value(numbers[i].name(), committed.path(numbers[i].field).asLong());
    }
    return values;
  }

  /** A number of the answer. */
  private abstract static class Counted extends ShownNumber {
    private final String field;

    Counted(String field, String description) {
      super("lanceCommitted_" + field, description);
      this.field = field;
    }
  }

  /** Number of the new version; 0 where nothing changed. */
  public static final class Version extends Counted {
    public Version() {
      super("version", "version of the table");
    }
  }

  /** New rows. */
  public static final class Inserted extends Counted {
    public Inserted() {
      super("rows_inserted", "rows inserted");
    }
  }

  /** Rows with new values. */
  public static final class Updated extends Counted {
    public Updated() {
      super("rows_updated", "rows updated");
    }
  }

  /** Rows that left. */
  public static final class Deleted extends Counted {
    public Deleted() {
      super("rows_deleted", "rows deleted");
    }
  }

  /** Bytes of the new data files. */
  public static final class Bytes extends Counted {
    public Bytes() {
      super("bytes", "bytes written to the store");
    }
  }
}
