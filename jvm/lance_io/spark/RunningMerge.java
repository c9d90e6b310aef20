package lance_io.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collection;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NamedRelation;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The MERGE that this thread commits, from the plan of its statement.
 *
 * <p>The interfaces for writes do not say it: Spark makes a plain append of a MERGE that only inserts, and no MERGE says
 * the columns of its ON. Two that insert one key must not both be committed.
 */
final class RunningMerge {
  private final Set<ExprId> target = new HashSet<>(); // the columns of the table

  private RunningMerge() {}

  /**
   * `on`: the table's columns that ON compares, null where it does more than that. `inserts`: whether it has a WHEN NOT
   * MATCHED clause. Null where no MERGE runs.
   */
  static ObjectNode json() {
    String id = SparkSession.active().sparkContext().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    QueryExecution execution = id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    return execution == null ? null : new RunningMerge().in(execution.analyzed());
  }

  private ObjectNode in(LogicalPlan plan) {
    if (plan instanceof WriteDelta change) {
      return json(columns(change.originalTable()), change.condition()).put("inserts", inserts(change.query()));
    }
    if (plan instanceof V2WriteCommand append) {
      Seq<Attribute> columns = columns(append.table());
      addTarget(columns);
      Expression condition = joinCondition(append.query());
      return condition == null ? null : json(columns, condition).put("inserts", true);
    }
    for (LogicalPlan child : all(plan.children())) { // such as the statement below its common table expressions
      ObjectNode merge = in(child);
      if (merge != null) {
        return merge;
      }
    }
    return null;
  }

  /** The condition of the join with the very relation that is written: an INSERT reads another one of the same table. */
  private Expression joinCondition(LogicalPlan plan) {
    if (plan instanceof Join join && join.condition().isDefined() && isTarget(join.right())) {
      return join.condition().get();
    }
    for (LogicalPlan child : all(plan.children())) {
      Expression condition = joinCondition(child);
      if (condition != null) {
        return condition;
      }
    }
    return null;
  }

  private static boolean inserts(LogicalPlan plan) {
    return plan instanceof MergeRows rows && !rows.notMatchedInstructions().isEmpty()
        || all(plan.children()).stream().anyMatch(RunningMerge::inserts);
  }

  private boolean isTarget(LogicalPlan plan) {
    return all(plan.output()).stream().anyMatch(this::isTarget);
  }

  private boolean isTarget(Expression expression) {
    return expression instanceof Attribute column && target.contains(column.exprId());
  }

  /** Relations are plans, which Java does not see. */
  private static Seq<Attribute> columns(NamedRelation relation) {
    return ((LogicalPlan) relation).output();
  }

  private void addTarget(Seq<Attribute> columns) {
    all(columns).forEach(column -> target.add(column.exprId()));
  }

  private ObjectNode json(Seq<Attribute> columns, Expression condition) {
    addTarget(columns);
    ObjectNode merge = Worker.JSON.createObjectNode();
    ArrayNode on = Worker.JSON.createArrayNode();
    merge.set("on", addKeys(condition, on) ? on : null);
    return merge;
  }

  /** Adds the table's columns of a condition; false where it is not just their equality with something of the source. */
  private boolean addKeys(Expression condition, ArrayNode on) {
    if (condition instanceof And both) {
      return addKeys(both.left(), on) && addKeys(both.right(), on);
    }
    if (!(condition instanceof EqualTo equal)) {
      return false;
    }
    Expression column = isTarget(equal.left()) ? equal.left() : equal.right();
    Expression other = column == equal.left() ? equal.right() : equal.left();
    if (!isTarget(column) || readsTarget(other)) {
      return false;
    }
    on.add(((Attribute) column).name());
    return true;
  }

  private boolean readsTarget(Expression expression) {
    return isTarget(expression) || all(expression.children()).stream().anyMatch(this::readsTarget);
  }

  private static <T> Collection<T> all(Seq<T> elements) {
    return CollectionConverters.asJava(elements);
  }
}
