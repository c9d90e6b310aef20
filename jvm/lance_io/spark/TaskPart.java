package lance_io.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/**
 * The rows of one task.
 *
 * @param python which Python reads them
 * @param job what all tasks of the read share, as Python serialized it
 * @param part the rows, as Python serialized them
 */
record TaskPart(String python, String job, String part) implements InputPartition {}
