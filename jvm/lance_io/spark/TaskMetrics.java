package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The costs of reads, for Spark's user interface. */
final class TaskMetrics {
  private static final String REQUESTS = "lanceRequests";
  private static final String BYTES = "lanceBytes";
  private static final String CACHED = "lanceCached";
  private static final String WAITED = "lanceWaitedMs";

  private TaskMetrics() {}

  static CustomMetric[] supported() {
    return ShownNumber.areFound()
        ? new CustomMetric[] {new Requests(), new Bytes(), new Cached(), new Waited()}
        : new CustomMetric[0];
  }

  static CustomTaskMetric[] of(JsonNode costs, long waitedNanos) {
    return new CustomTaskMetric[] {
      new ShownNumber.Value(REQUESTS, costs.path("requests").asLong()),
      new ShownNumber.Value(BYTES, costs.path("bytes").asLong()),
      new ShownNumber.Value(CACHED, costs.path("cached").asLong()),
      new ShownNumber.Value(WAITED, waitedNanos / 1_000_000)
    };
  }

  /** Requests to the store. */
  public static final class Requests extends ShownNumber {
    public Requests() {
      super(REQUESTS, "requests to the store");
    }
  }

  /** Bytes of their answers. */
  public static final class Bytes extends ShownNumber {
    public Bytes() {
      super(BYTES, "bytes read from the store");
    }
  }

  /** Reads that took no request. */
  public static final class Cached extends ShownNumber {
    public Cached() {
      super(CACHED, "reads answered by the disk cache");
    }
  }

  /** Time in which tasks waited for the worker. */
  public static final class Waited extends ShownNumber {
    public Waited() {
      super(WAITED, "milliseconds waited for the worker");
    }
  }
}
