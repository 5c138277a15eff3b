"""One siege: attack after attack on one broker, and the figures of its canary."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.siege.attack import TOPIC, Attack
from ringmq.loadtest.siege.attacker import AttackerError, attackers
from ringmq.loadtest.siege.attacks import attack_named
from ringmq.loadtest.siege.broker_under_test import BrokerUnderTest
from ringmq.loadtest.siege.canary import Canary
from ringmq.loadtest.siege.figures import AttackFigures, CanaryRequest, Goals, lane_figures
from ringmq.loadtest.siege.polling import polling_consumer
from ringmq.loadtest.siege.watch import Watch

BEFORE_S = 1.0
START_TIMEOUT_S = 30.0
"""Time in which a fresh broker serves all lanes once: some workers start with their first request."""
GIVE_UP_S = 30.0
"""The time after an attack in which a canary may still wait. Then the broker is started again."""
RECOVER_S = 10.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class SiegeOptions:
    """seconds: of an attack. after_s: the time for the canary after it. cpu: of all attackers."""

    seed: int = 1
    seconds: float = 15.0
    after_s: float = 25.0
    cpu: int = 0
    settings: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class SiegeReport:
    """The result of a siege. `sent`: acknowledged messages of the canary."""

    options: SiegeOptions
    attacks: list[AttackFigures] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    failed_starts: int = 0
    sent: int = 0
    elapsed_s: float = 0.0

    def missed(self, goals: Goals) -> list[str]:
        """Return every goal that was broken."""
        found = [f"{attack.name}: {text}" for attack in self.attacks for text in attack.missed(goals)]
        found += [f"{violation.kind}: {violation.text}" for violation in self.violations]
        return found + ([f"failed starts: {self.failed_starts}"] if self.failed_starts else [])


def run_siege(
    folder: Path, rows: Sequence[tuple[str, ...]], options: SiegeOptions, tell: Callable[[str], None]
) -> SiegeReport:
    """Run rows, each one attack or two at once, by name. Stores are in `folder`.

    Raises RuntimeError if a fresh broker does not start.
    """
    began = time.monotonic()
    report = SiegeReport(options)
    tested = BrokerUnderTest(folder, options.settings, tell)
    try:
        for number, names in enumerate(rows):
            tell(" + ".join(names))
            found = attack(tested, names, options, options.seed * 1000 + 2 * number)
            report.attacks.append(found)
            for text in found.missed(Goals()):
                tell(f"  {text}")
        tested.verify_store()
    finally:
        tested.close()
    report.violations, report.failed_starts, report.sent = tested.violations, tested.failed_starts, tested.sent
    report.elapsed_s = time.monotonic() - began
    return report


def attack(tested: BrokerUnderTest, names: tuple[str, ...], options: SiegeOptions, seed: int) -> AttackFigures:
    """Run one row."""
    attacks = [attack_named(name) for name in names]
    found = AttackFigures(" + ".join(names), "; ".join(attack.aims_at for attack in attacks), {})
    tested.use(settings_of(attacks))
    found.memory_max_bytes = tested.memory_max_bytes
    found.limits = [attack.limits for attack in attacks]
    with contextlib.ExitStack() as stack:
        if any(attack.needs_slave for attack in attacks):
            stack.enter_context(tested.slave())
        ready = stack.enter_context(attackers(names, tested.target, seed, options.cpu))
        kinds = list(dict.fromkeys(kind for attack in attacks for kind in attack.beside))
        beside = stack.enter_context(tested.beside(kinds))
        consumer = None
        if any(limits.consumer_bytes for limits in found.limits):
            consumer = stack.enter_context(polling_consumer(tested.broker.namesrv, TOPIC))
        canaries = [tested.canary, *([beside] if beside else [])]
        time.sleep(BEFORE_S)
        if not _wait_until(lambda: all(canary.is_served for canary in canaries), START_TIMEOUT_S):
            found.faults.append("the canary was not served before the attack")
        for canary in canaries:
            canary.forget(time.monotonic())
        watch = Watch(tested.broker)
        watch.start()
        cpu_s = watch.reader_cpu_s()
        began = time.monotonic()
        for attacker in ready:
            attacker.begin(options.seconds)
        time.sleep(options.seconds)
        end = time.monotonic()
        found.reader_cpu_s = watch.reader_cpu_s() - cpu_s
        time.sleep(options.after_s)
        recovered = _wait_answered(canaries, GIVE_UP_S)
        asked, asked_beside = tested.canary.asked(began), beside.asked(began) if beside else {}
        found.consumer = consumer.end() if consumer else None
        watch.stop()
        for attacker in ready:
            try:
                found.tallies.append(attacker.end())
            except AttackerError as error:
                found.faults.append(f"attacker: {error}")
    found.lanes = {name: lane_figures(one, began, end) for name, one in asked.items()}
    found.beside = {name: lane_figures(one, began, end) for name, one in asked_beside.items()}
    found.memory_bytes, found.deaths = watch.peaks, watch.deaths
    found.log_lines, found.log_samples = watch.log()
    if not recovered:
        _recover(tested, found)
    return found


def settings_of(attacks: Sequence[Attack]) -> Mapping[str, object] | None:
    """Return the settings of attacks at once, None if all of them run on the siege's broker."""
    own = [attack.settings for attack in attacks if attack.settings is not None]
    return {name: value for settings in own for name, value in settings.items()} if own else None


def _wait_answered(canaries: Sequence[Canary], timeout_s: float) -> bool:
    """Wait until no lane has been waiting for more than a second."""
    return _wait_until(
        lambda: not any(_is_late(one) for canary in canaries for one in canary.asked(0.0).values()), timeout_s
    )


def _wait_until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_late(asked: Sequence[CanaryRequest]) -> bool:
    return bool(asked) and not asked[-1].answered and asked[-1].took_s > 1.0


def _recover(tested: BrokerUnderTest, found: AttackFigures) -> None:
    """Start the broker again if it did not recover by itself, if needed with another store."""
    found.faults.append(f"not normal {GIVE_UP_S:.0f} s later")
    if not tested.start_again() or not _wait_answered([tested.canary], RECOVER_S):
        found.faults.append("not normal after a restart either")
        tested.replace_store()
