package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The costs of reads that Spark's user interface shows. Spark makes the classes by their names, on the driver. */
final class TaskMetrics {
  private static final String REQUESTS = "lanceRequests";
  private static final String BYTES = "lanceBytes";
  private static final String WAITED = "lanceWaitedMs";

  private TaskMetrics() {}

  /** None where the JAR came later than the JVM: Spark would log an error for each, because it looks elsewhere. */
  static CustomMetric[] supported() {
    if (!SparkEnv.get().conf().get("spark.jars", "").contains("lance_io")) {
      return new CustomMetric[0];
    }
    return new CustomMetric[] {new Requests(), new Bytes(), new Waited()};
  }

  static CustomTaskMetric[] of(JsonNode costs, long waitedNanos) {
    return new CustomTaskMetric[] {
      new Value(REQUESTS, costs.path("requests").asLong()),
      new Value(BYTES, costs.path("bytes").asLong()),
      new Value(WAITED, waitedNanos / 1_000_000)
    };
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  /** Requests to the store. */
  public static final class Requests extends CustomSumMetric {
    @Override
    public String name() {
      return REQUESTS;
    }

    @Override
    public String description() {
      return "requests to the store";
    }
  }

  /** Bytes of their answers. */
  public static final class Bytes extends CustomSumMetric {
    @Override
    public String name() {
      return BYTES;
    }

    @Override
    public String description() {
      return "bytes read from the store";
    }
  }

  /** Time in which tasks waited for the worker. */
  public static final class Waited extends CustomSumMetric {
    @Override
    public String name() {
      return WAITED;
    }

    @Override
    public String description() {
      return "milliseconds waited for the worker";
    }
  }
}
