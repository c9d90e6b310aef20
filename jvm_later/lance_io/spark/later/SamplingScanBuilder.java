package lance_io.spark.later;

import lance_io.spark.LanceScanBuilder;
import org.apache.spark.sql.connector.read.SampleMethod;
import org.apache.spark.sql.connector.read.SupportsPushDownTableSample;

/** Takes samples of whole fragments, which Spark asks for from 4.2 on; loaded by its name there, and nowhere else. */
public final class SamplingScanBuilder extends LanceScanBuilder implements SupportsPushDownTableSample {
  public SamplingScanBuilder() {}

  /** TABLESAMPLE SYSTEM. The rows of other samples are defined by Spark's own generator, which it runs over all rows. */
  @Override
  public boolean pushTableSample(
      double lowerBound, double upperBound, boolean withReplacement, long seed, SampleMethod method) {
    return method == SampleMethod.SYSTEM && !withReplacement && sampleFragments(lowerBound, upperBound, seed);
  }
}
