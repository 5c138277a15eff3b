package io.ringmq.spark.read;

import io.ringmq.spark.store.StoreFolder;
import java.io.Serializable;
import java.util.ArrayList;

/**
 * Settings of a read, the same for all its tasks.
 *
 * @param store the files
 * @param broker the value of the column broker
 * @param columns the wanted columns, in order
 * @param verifyCrc true: check the CRC of each body
 * @param failOnDataLoss true: lost or broken rows end the read with an error
 */
public record ReadSettings(
        StoreFolder store, String broker, ArrayList<Column> columns, boolean verifyCrc, boolean failOnDataLoss)
        implements Serializable {}
