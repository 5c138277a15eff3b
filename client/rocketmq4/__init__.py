"""The names of the 4.x Python clients over `ringmq.client.blocking`: programs move by changing an import.

`from rocketmq.client import Producer` becomes `from ringmq.client.rocketmq4.client import Producer`; `consts`,
`exceptions` and `ffi.MessageModel` have their modules, too. Both published packages are covered: `rocketmq` 0.4.4
(`set_namesrv_addr`, `send_async`, `send_batch`, `PullConsumer`, `RecvMessage`) and `rocketmq-client-python` 2.0.0
(`set_name_server_address`, `send_orderly_with_sharding_key`, `TransactionMQProducer`, `ReceivedMessage`). What differs
is in docs/moving-clients.md.
"""
