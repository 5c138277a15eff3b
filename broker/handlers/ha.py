"""Replication's requests: private handshake (270002), decision (270003), reading of the log (270004), status (270005,
907), and stock's exchange of addresses (906)."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ringmq.broker.config.identity import Identity as BrokerIdentity
from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.replication import ha_status, refusals
from ringmq.broker.replication.state import Replication, UndecidedError
from ringmq.broker.replication.tenure_role import TenureRole
from ringmq.broker.requests import access
from ringmq.broker.requests.request import Answer, Connection, Request, Slices
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.protocols import StoreProtocol
from ringmq.ha import handshake
from ringmq.ha.control_messages import Identity, MessageError
from ringmq.ha.handshake import HandshakeAnswer, MasterView, PeerClaim, Verdict
from ringmq.ha.tenure_records import begun_at
from ringmq.remoting import ha_bodies, json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.networks import Networks, is_address, networks

SLAVE = "SLAVE"
CONFIRM = "confirm"
READ_STEP_BYTES = 64 << 10


class HaRequests(Struct, frozen=True):
    """Replication's handlers, with the parts that they need."""

    live: LiveConfig
    identity: BrokerIdentity
    store: StoreProtocol
    replication: Replication
    role: TenureRole

    def shake_hands(self, request: Request) -> Answer:
        """270002: decide about a slave's log. ha gets the slave's identity before the slave gets its acceptance."""
        try:
            claim = handshake.claim_of(request.command.body)
        except MessageError as error:
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        if claim.operation == CONFIRM:
            return self._handshake_answer(request, Verdict(handshake.ACCEPT))
        if not self.live.is_master:
            verdict = Verdict(handshake.REFUSE, reason=f"broker {self.live.config.broker_id} is a slave itself")
            return self._handshake_answer(request, verdict)
        host, replication = request.connection.host, self.replication
        claim, lie = claim_of_connection(claim, host, networks(self.live.config.ha_allowed_networks))
        if lie:
            replication.refusals.add(refusals.ADDRESS, host, f"slave {claim.broker_id} ({host}) is refused: {lie}")
            return self._handshake_answer(request, Verdict(handshake.REFUSE, reason=lie))
        own = self._own_view(claim, request.connection)
        verdict = handshake.decide(claim, own, self.store.log_crc)
        if verdict.kind == handshake.REFUSE and verdict.reason.startswith(handshake.UNNAMED):
            text = f"slave {claim.broker_id} ({host}) is refused, sends go on: {verdict.reason}"
            replication.refusals.add(refusals.UNNAMED, host, text)
        if verdict.kind == handshake.HOLD:
            verdict = replication.prove(claim, verdict, request.now_ms)
        replication.on_handshake(claim, verdict, is_named=own.is_named)
        if verdict.kind == handshake.ACCEPT and not self.replication.view.give(_identity(claim, request)):
            return request.reply(ResponseCode.SYSTEM_BUSY, "too many commands wait for worker ha, try again")
        return self._handshake_answer(request, verdict)

    def _own_view(self, claim: PeerClaim, connection: Connection) -> MasterView:
        marks, config = self.replication.view.marks(), self.live.config
        promoted = begun_at(self.role.core.record)
        return MasterView(
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            start_id=f"{marks.start_id:x}",
            min_offset=marks.min_offset,
            max_offset=marks.append_offset,
            file_bytes=config.mapped_file_size_commit_log,
            rule=config.ha_divergence_rule,
            decided=self.replication.choices_for(claim),
            from_newest_file=config.ha_start_from_newest_file,
            allowed=tuple(filter(None, config.ha_allowed_replicas.split(";"))),
            peer_host=connection.host,
            is_named=access.is_named_replica(config, connection),
            epoch=promoted.epoch,
            epoch_offset=promoted.offset,
        )

    def _handshake_answer(self, request: Request, verdict: Verdict) -> Answer:
        marks = self.replication.view.marks()
        answer = HandshakeAnswer(
            verdict=verdict.kind,
            offset=verdict.offset,
            reason=verdict.reason,
            start_id=f"{marks.start_id:x}",
            min_offset=marks.min_offset,
            max_offset=marks.append_offset,
            confirm_offset=marks.confirm_offset,
            room=self.live.config.ha_room,
        )
        return request.reply(body=handshake.body(answer))

    def decide(self, request: Request) -> Answer:
        """270003: apply an operator's decision about a slave's longer or different log."""
        header = ha_bodies.HaDecideRequestHeader.decode(request.command.ext_fields)
        if header.choice not in (ha_bodies.ADOPT, ha_bodies.SALVAGE):
            remark = f"choice = {header.choice[:64]!r} is not known, accepted: {ha_bodies.ADOPT} or {ha_bodies.SALVAGE}"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        try:
            divergence = self.replication.decide(header.broker_id, header.choice, header.address or "")
        except UndecidedError as error:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, str(error))
        except ValueError as error:
            return request.reply(ResponseCode.INVALID_PARAMETER, str(error))
        return request.reply(body=json_body.write_body(divergence.to_json()))

    def read_log(self, request: Request) -> Slices:
        """270004: raw bytes of the log, for a master that adopts them, up to the log's end and READ_LOG_BYTES_MAX.

        Pages may come from a slow disk, so each step reads few of them.
        """
        return Slices(self._read_log(request), is_large=True, is_reading=True)

    def _read_log(self, request: Request) -> Steps[Answer]:
        header = ha_bodies.HaReadLogRequestHeader.decode(request.command.ext_fields)
        end = self.replication.view.marks().append_offset
        length = min(header.max_bytes, ha_bodies.READ_LOG_BYTES_MAX, end - header.offset)
        parts: list[bytes] = []
        at, stop = header.offset, header.offset + length
        while 0 <= at < stop:
            part = self.store.log_bytes(at, min(READ_STEP_BYTES, stop - at))
            if not part:
                break
            parts.append(part)
            at += len(part)
            yield
        if not parts:
            remark = f"offset {header.offset} is not in the log, which ends at {end}"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        fields = ha_bodies.HaReadLogResponseHeader(offset=header.offset, max_offset=end).encode()
        return request.reply(ext_fields=fields, body=b"".join(parts))

    def status(self, request: Request) -> Answer:
        """270005."""
        return request.reply(body=ha_status.status(self.live, self.replication).encode())

    def runtime_status(self, request: Request) -> Answer:
        """907."""
        return request.reply(body=ha_status.runtime_info(self.live, self.replication, request.now_ms).encode())

    def exchange(self, request: Request) -> Answer:
        """906: answer with the master's address. The request's content concerns stock's acting masters and is
        ignored."""
        header = ha_bodies.ExchangeHaInfoHeader.decode(request.command.ext_fields)
        if header.master_ha_address is not None or not self.live.is_master:
            return request.reply()
        answer = ha_bodies.ExchangeHaInfoHeader(
            master_ha_address=self.identity.ha_address(self.live.config),
            master_flush_offset=self.replication.view.marks().flushed_offset,
            master_address=self.identity.address,
        )
        return request.reply(ext_fields=answer.encode())


def claim_of_connection(claim: PeerClaim, host: str, allowed: Networks) -> tuple[PeerClaim, str]:
    """(claim, reason of a refusal or ""). The claim has the connection's host in place of the one that the slave sends.

    That slave's log is read from this host. The slave may send another host if the list allows it, because a broker can
    have several addresses. A name is ignored, because it proves nothing.
    """
    said, _, port = claim.broker_addr.rpartition(":")
    if not port:
        return claim, ""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not is_address(said) or said.strip("[]") == host or allowed.allows(said):
        return replace(claim, broker_addr=address), ""
    lie = f"its brokerIP1 is {said}, its connection comes from {host}, and haAllowedNetworks names only the latter"
    return replace(claim, broker_addr=address), lie


def _identity(claim: PeerClaim, request: Request) -> Identity:
    """The identity of the slave. Its HA connection comes from the host of this request."""
    return Identity(
        host=request.connection.host,
        port=claim.ha_port,
        broker_id=claim.broker_id,
        room=claim.room,
        level=claim.report_level,
        start_id=claim.start_id,
    )
