package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownOffset;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/**
 * Collects what a query needs of a table. Each use of a table in a query has a builder of its own.
 *
 * <p>Public for the class that adds what later releases of Spark ask for.
 */
public class LanceScanBuilder
    implements ScanBuilder,
        SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownLimit,
        SupportsPushDownOffset,
        SupportsPushDownTopN,
        SupportsPushDownAggregates {
  private static final String LATER = "lance_io.spark.later.SamplingScanBuilder"; // compiled against 4.2

  private LanceTable table;
  private StructType required;
  private Predicate[] pushed = new Predicate[0];
  private String filter; // SQL in the language of Python; may leave more rows than the predicates
  private String pruned = ""; // predicates that Spark checks again
  private int limit = -1;
  private int offset;
  private String order; // JSON
  private String shownOrder = "";
  private boolean counts;
  private AggregateScan answered; // aggregates whose values are known
  private boolean changes;
  private Sample sample;

  protected LanceScanBuilder() {}

  static LanceScanBuilder of(LanceTable table) {
    LanceScanBuilder builder = Release.isAtLeast(4, 2) ? later() : new LanceScanBuilder();
    builder.table = table;
    return builder;
  }

  private static LanceScanBuilder later() {
    try {
      return (LanceScanBuilder) Class.forName(LATER).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("the JAR of lance_io is damaged: it has no " + LATER, e);
    }
  }

  /** For the rows of a statement that changes them. */
  LanceScanBuilder ofChange() {
    changes = true;
    return this;
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

  /** Spark gives a limit only where all predicates were pushed. */
  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  /** Rows that are counted by the manifest are planned exactly; else each task has the limit, and Spark cuts again. */
  @Override
  public boolean isPartiallyPushed() {
    return order != null || !rowsAreCounted();
  }

  /**
   * Reads some of the fragments, each whole. Spark says so before anything else of a query. The option `limit` of a load
   * counts rows before, so beside it nothing is sampled.
   */
  protected final boolean sampleFragments(double lower, double upper, long seed) {
    if (table.options().has("limit")) {
      return false;
    }
    sample = new Sample(lower, upper, seed);
    return true;
  }

  private boolean rowsAreCounted() {
    return filter == null && table.knowsItsCount();
  }

  @Override
  public boolean pushOffset(int rows) {
    if (!rowsAreCounted()) {
      return false;
    }
    offset = rows;
    return true;
  }

  /** Each task reads the sort keys of all its rows, and other columns of its first rows only. */
  @Override
  public boolean pushTopN(SortOrder[] orders, int rows) {
    ObjectNode request = table.request("order").put("limit", rows);
    ArrayNode keys = request.putArray("keys");
    for (SortOrder key : orders) {
      if (!(key.expression() instanceof NamedReference column) || !table.hasColumn(column.fieldNames()[0])) {
        return false;
      }
      ObjectNode node = keys.addObject().put("ascending", key.direction() == SortDirection.ASCENDING);
      node.put("nulls_first", key.nullOrdering() == NullOrdering.NULLS_FIRST);
      Predicates.putPath(node, column);
    }
    if (!Worker.ask(table.options().python(), request).get("is_pushed").asBoolean()) {
      return false;
    }
    order = keys.toString();
    shownOrder = ", first " + rows + " rows of each task by " + Arrays.toString(orders);
    limit = rows;
    return true;
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    if (supportCompletePushDown(aggregation)) {
      return true;
    }
    counts = isCount(aggregation);
    return counts;
  }

  /** Where manifest or indices have all values. Else each task counts its rows, and Spark adds. */
  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    if (answered == null && sample == null) {
      answered = AggregateScan.of(table, filter, aggregation);
    }
    return answered != null;
  }

  private static boolean isCount(Aggregation aggregation) {
    return aggregation.groupByExpressions().length == 0
        && aggregation.aggregateExpressions().length == 1
        && aggregation.aggregateExpressions()[0] instanceof CountStar;
  }

  @Override
  public Scan build() {
    if (answered != null) {
      return answered;
    }
    String shown =
        "pushed " + Arrays.toString(pushed)
            + (pruned.isEmpty() ? "" : ", used for pruning [" + pruned + "]")
            + (limit < 0 || order != null ? "" : ", limit " + limit + (rowsAreCounted() ? "" : " for each task"))
            + (offset == 0 ? "" : ", offset " + offset)
            + shownOrder
            + (sample == null ? "" : ", fragments sampled from " + sample.lower() + " to " + sample.upper());
    Pushed all = new Pushed(counts, filter, limit, offset, order, sample);
    return changes ? new LanceScan(table, required, all, shown) : new LanceScan.OfQuery(table, required, all, shown);
  }
}
