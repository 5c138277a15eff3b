"""The control role (all policy in plain Python), the configuration, and the broker's processes.

Must stay true: per-message work never comes here in steady state; handlers are pure, the control shell acts. May
import: ringmq.ipc, ringmq.remoting, ringmq.store, ringmq.ha, ringmq.native.
"""
