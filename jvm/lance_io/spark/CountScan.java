package lance_io.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** `count(*)` of a whole version: one row, from the manifest. */
record CountScan(LanceTable table) implements LocalScan {
  @Override
  public StructType readSchema() {
    return LanceScan.COUNT;
  }

  @Override
  public String description() {
    return "lance_io " + table.name() + " version " + table.number() + ", count from the manifest";
  }

  @Override
  public InternalRow[] rows() {
    long rows = Worker.ask(table.options().python(), table.request("count")).get("rows").asLong();
    return new InternalRow[] {new GenericInternalRow(new Object[] {rows})};
  }
}
