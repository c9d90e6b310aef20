package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a commit did, for Spark's user interface. Spark makes the classes by their names, on the driver. */
final class WriteMetrics {
  private WriteMetrics() {}

  /** None where the JAR came later than the JVM, as for `TaskMetrics`. */
  static CustomMetric[] supported() {
    if (!SparkEnv.get().conf().get("spark.jars", "").contains("lance_io")) {
      return new CustomMetric[0];
    }
    return new CustomMetric[] {new Version(), new Inserted(), new Updated(), new Deleted(), new Bytes()};
  }

  /** The values of a commit, by the answer of Python; none before there is one. */
  static CustomTaskMetric[] of(JsonNode committed) {
    CustomMetric[] metrics = committed == null ? new CustomMetric[0] : supported();
    CustomTaskMetric[] values = new CustomTaskMetric[metrics.length];
    for (int i = 0; i < metrics.length; i++) {
      values[i] = new Value(metrics[i].name(), committed.path(((Counted) metrics[i]).field()).asLong());
    }
    return values;
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  /** A number of the answer. */
  private abstract static class Counted extends CustomSumMetric {
    abstract String field();

    @Override
    public String name() {
      return "lanceCommitted_" + field();
    }
  }

  /** Number of the new version; 0 where nothing changed. */
  public static final class Version extends Counted {
    @Override
    String field() {
      return "version";
    }

    @Override
    public String description() {
      return "version of the table";
    }
  }

  /** New rows. */
  public static final class Inserted extends Counted {
    @Override
    String field() {
      return "rows_inserted";
    }

    @Override
    public String description() {
      return "rows inserted";
    }
  }

  /** Rows with new values. */
  public static final class Updated extends Counted {
    @Override
    String field() {
      return "rows_updated";
    }

    @Override
    public String description() {
      return "rows updated";
    }
  }

  /** Rows that left. */
  public static final class Deleted extends Counted {
    @Override
    String field() {
      return "rows_deleted";
    }

    @Override
    public String description() {
      return "rows deleted";
    }
  }

  /** Bytes of the new data files. */
  public static final class Bytes extends Counted {
    @Override
    String field() {
      return "bytes";
    }

    @Override
    public String description() {
      return "bytes written to the store";
    }
  }
}
