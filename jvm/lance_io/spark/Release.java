package lance_io.spark;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;
import java.util.Set;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;

/** The version of this JAR, and whether it works with the running Spark. */
final class Release {
  private static final Set<String> TESTED = Set.of("4.1", "4.2", "4.3");

  // Of plans: which statement a write belongs to.
  private static final String[] PLANS = {
    "org.apache.spark.sql.catalyst.expressions.And",
    "org.apache.spark.sql.catalyst.expressions.Attribute",
    "org.apache.spark.sql.catalyst.expressions.EqualTo",
    "org.apache.spark.sql.catalyst.expressions.ExprId",
    "org.apache.spark.sql.catalyst.expressions.Expression",
    "org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand",
    "org.apache.spark.sql.catalyst.plans.logical.Join",
    "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan",
    "org.apache.spark.sql.catalyst.plans.logical.MergeRows",
    "org.apache.spark.sql.catalyst.plans.logical.WriteDelta",
    "org.apache.spark.sql.execution.QueryExecution",
    "org.apache.spark.sql.execution.SQLExecution"
  };

  private static String checked; // the Spark that has passed

  private Release() {}

  /** The version of the package that this JAR belongs to. */
  static String version() {
    Properties properties = new Properties();
    try (InputStream file = Release.class.getResourceAsStream("version.properties")) {
      properties.load(file);
    } catch (IOException e) {
      throw new IllegalStateException("the JAR of lance_io is damaged: it has no version", e);
    }
    return properties.getProperty("version");
  }

  /**
   * Refuses a Spark that this JAR does not work with, at first use. A release that it was not tested with is served if
   * the internal classes that it uses are as they were.
   */
  static synchronized void check() {
    String spark = SparkSession.active().version();
    if (spark.equals(checked)) {
      return;
    }
    String refusal = refusal(spark);
    if (refusal != null) {
      throw new UnsupportedOperationException(refusal);
    }
    checked = spark;
  }

  /** Whether this Spark is of a release or later. */
  static boolean isAtLeast(int major, int minor) {
    String[] parts = SparkSession.active().version().split("\\.");
    int ours = Integer.parseInt(parts[0]);
    return ours > major || (ours == major && Integer.parseInt(parts[1]) >= minor);
  }

  /** Why this JAR does not serve a release of Spark, of which this JVM has the classes; null if it does. */
  static String refusal(String spark) {
    String[] parts = spark.split("\\.");
    if (parts.length < 2 || Integer.parseInt(parts[0]) < 4 || spark.startsWith("4.0")) {
      return "lance_io needs Spark 4.1 or later; this is " + spark;
    }
    String missing = TESTED.contains(parts[0] + "." + parts[1]) ? null : missing();
    return missing == null
        ? null
        : "the JAR of lance_io " + version() + " does not work with Spark " + spark + ", which has no " + missing
            + "; without the JAR, format(\"lance_io\") is served by the source in Python";
  }

  /** The first internal class or method that this Spark lacks; null if it has all. */
  static String missing() {
    try {
      Class<?> source = Class.forName("org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2");
      source.getConstructor();
      source.getMethod("setShortName", String.class);
      Class.forName("org.apache.spark.sql.catalyst.expressions.GenericInternalRow").getConstructor(Object[].class);
      Class<?> result = Class.forName("org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage");
      result.getConstructor(byte[].class);
      result.getMethod("pickledMessage");
      Class<?> writer = Class.forName("org.apache.spark.sql.execution.arrow.ArrowWriter");
      writer.getMethod("create", VectorSchemaRoot.class);
      writer.getMethod("write", InternalRow.class);
      writer.getMethod("finish");
      writer.getMethod("reset");
      for (String name : PLANS) {
        Class.forName(name);
      }
      Class.forName("org.apache.spark.sql.execution.SQLExecution").getMethod("getQueryExecution", long.class);
      Class.forName("org.apache.spark.sql.execution.QueryExecution").getMethod("analyzed");
      Class<?> change = Class.forName("org.apache.spark.sql.catalyst.plans.logical.WriteDelta");
      change.getMethod("condition");
      change.getMethod("originalTable");
      change.getMethod("query");
      Class.forName("org.apache.spark.sql.catalyst.plans.logical.MergeRows").getMethod("notMatchedInstructions");
      return null;
    } catch (ReflectiveOperationException e) {
      return e.getMessage();
    }
  }
}
