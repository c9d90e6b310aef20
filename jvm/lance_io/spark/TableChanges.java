package lance_io.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The parts of ALTER TABLE and CREATE TABLE in forms that Python reads. */
final class TableChanges {
  private TableChanges() {}

  static StructType struct(Column[] columns) {
    StructField[] fields = new StructField[columns.length];
    for (int i = 0; i < fields.length; i++) {
      Column column = columns[i];
      MetadataBuilder metadata = new MetadataBuilder();
      if (column.metadataInJSON() != null) {
        metadata.withMetadata(Metadata.fromJson(column.metadataInJSON()));
      }
      if (column.comment() != null) {
        metadata.putString("comment", column.comment());
      }
      fields[i] = new StructField(column.name(), column.dataType(), column.nullable(), metadata.build());
    }
    return new StructType(fields);
  }

  static ArrayNode json(TableChange[] changes) {
    ArrayNode all = Worker.JSON.createArrayNode();
    for (TableChange change : changes) {
      add(all.addObject(), change);
    }
    return all;
  }

  private static void add(ObjectNode node, TableChange change) {
    if (change instanceof TableChange.SetProperty set) {
      node.put("kind", "set").put("key", set.property()).put("value", set.value());
    } else if (change instanceof TableChange.RemoveProperty remove) {
      node.put("kind", "remove").put("key", remove.property());
    } else if (change instanceof TableChange.AddColumn column) {
      path(node.put("kind", "add"), column.fieldNames());
      node.put("type", column.dataType().json()).put("nullable", column.isNullable()).put("comment", column.comment());
      node.put("position", column.position() == null ? null : column.position().toString());
    } else if (change instanceof TableChange.RenameColumn column) {
      path(node.put("kind", "rename").put("name", column.newName()), column.fieldNames());
    } else if (change instanceof TableChange.UpdateColumnType column) {
      path(node.put("kind", "type").put("type", column.newDataType().json()), column.fieldNames());
    } else if (change instanceof TableChange.UpdateColumnNullability column) {
      path(node.put("kind", "nullability").put("nullable", column.nullable()), column.fieldNames());
    } else if (change instanceof TableChange.UpdateColumnComment column) {
      path(node.put("kind", "comment").put("comment", column.newComment()), column.fieldNames());
    } else if (change instanceof TableChange.DeleteColumn column) {
      path(node.put("kind", "drop").put("if_exists", column.ifExists()), column.fieldNames());
    } else if (change instanceof TableChange.UpdateColumnPosition) {
      node.put("kind", "order of columns that could be changed");
    } else {
      node.put("kind", "such change: " + change.getClass().getSimpleName());
    }
  }

  private static void path(ObjectNode node, String[] names) {
    ArrayNode path = node.putArray("path");
    for (String name : names) {
      path.add(name);
    }
  }
}
