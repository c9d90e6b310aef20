package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Collects what a query needs of a table. Each use of a table in a query has a builder of its own. */
final class LanceScanBuilder
    implements ScanBuilder,
        SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final LanceTable table;
  private StructType required;
  private Predicate[] pushed = new Predicate[0];
  private String filter; // SQL in the language of Python; may leave more rows than the predicates
  private String pruned = ""; // predicates that Spark checks again
  private int limit = -1;
  private boolean counts;

  LanceScanBuilder(LanceTable table) {
    this.table = table;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    if (predicates.length == 0) {
      return predicates;
    }
    JsonNode answer =
        Worker.ask(
            table.options().python(), table.request("filter").set("predicates", Predicates.json(predicates)));
    List<Predicate> exact = new ArrayList<>();
    List<Predicate> left = new ArrayList<>();
    List<Predicate> inexact = new ArrayList<>();
    for (int i = 0; i < predicates.length; i++) {
      String use = answer.get("uses").get(i).asText();
      (use.equals("exact") ? exact : left).add(predicates[i]);
      if (use.equals("superset")) {
        inexact.add(predicates[i]);
      }
    }
    pushed = exact.toArray(new Predicate[0]);
    pruned = inexact.stream().map(Object::toString).collect(Collectors.joining(", "));
    filter = answer.hasNonNull("filter") ? answer.get("filter").asText() : null;
    return left.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.clone();
  }

  @Override
  public void pruneColumns(StructType schema) {
    required = table.narrowed(schema);
  }

  /** Spark gives a limit only where all predicates were pushed. It still cuts the rows of all tasks together. */
  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    counts = isCount(aggregation);
    return counts;
  }

  /** Without a filter the manifest has the count; with one, each task counts its rows, and Spark adds. */
  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return isCount(aggregation) && filter == null && table.knowsItsCount();
  }

  private static boolean isCount(Aggregation aggregation) {
    return aggregation.groupByExpressions().length == 0
        && aggregation.aggregateExpressions().length == 1
        && aggregation.aggregateExpressions()[0] instanceof CountStar;
  }

  @Override
  public Scan build() {
    if (counts && filter == null && table.knowsItsCount()) {
      return new CountScan(table);
    }
    String shown =
        "pushed " + Arrays.toString(pushed)
            + (pruned.isEmpty() ? "" : ", used for pruning [" + pruned + "]")
            + (limit < 0 ? "" : ", limit " + limit + " for each task");
    return new LanceScan(table, required, counts, filter, limit, shown);
  }
}
