package io.ringmq.spark.read;

import io.ringmq.spark.store.StoreFolder;
import java.io.Serializable;
import java.util.ArrayList;

/**
 * What every task of a read needs to know.
 *
 * @param store where the files are
 * @param broker the broker's name, for the column of that name
 * @param columns the wanted columns, in order
 * @param verifyCrc whether each body's CRC is checked
 * @param failOnDataLoss whether rows that are gone or broken end the read
 */
public record ReadSettings(
        StoreFolder store, String broker, ArrayList<Column> columns, boolean verifyCrc, boolean failOnDataLoss)
        implements Serializable {}
