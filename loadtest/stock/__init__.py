"""Stock RocketMQ 5.3.3 as a reference: Maven class path, name server, broker and tools as child processes."""

from ringmq.loadtest.stock.java import (
    StockError,
    client_classpath,
    compile_java,
    java_command,
    mqadmin_command,
    stock_classpath,
)
from ringmq.loadtest.stock.ports import free_broker_port, free_port
from ringmq.loadtest.stock.server import StockServer, start_broker, start_namesrv

__all__ = [
    "StockError",
    "StockServer",
    "client_classpath",
    "compile_java",
    "free_broker_port",
    "free_port",
    "java_command",
    "mqadmin_command",
    "start_broker",
    "start_namesrv",
    "stock_classpath",
]
