package lance_io.spark;

import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A number that Spark's user interface shows. Spark makes the classes of such numbers by their names, on the driver. */
abstract class ShownNumber extends CustomSumMetric {
  private final String name;
  private final String description;

  ShownNumber(String name, String description) {
    this.name = name;
    this.description = description;
  }

  /** Whether Spark finds the classes: where the JAR came later than the JVM it would log an error for each. */
  static boolean areFound() {
    return SparkEnv.get().conf().get("spark.jars", "").contains("lance_io");
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }

  /** A value of the number with a name. */
  record Value(String name, long value) implements CustomTaskMetric {}
}
