"""An example service that answers clients: it stores the body of each request, and answers its queue offset.

The worker `services` would host it. `docs/adding-a-service.md` walks through this file.
"""

from ringmq.broker.requests.request import Answer, Outbox, Request, Wait
from ringmq.remoting.codes import ResponseCode
from ringmq.services.appends import Appends
from ringmq.services.kit.flight import Result
from ringmq.services.topics import Topics

TOPIC = "Journal"
CODE = 9901


class JournalService:
    """See HostedService. A death between a submit and its answer leaves the client without an answer: it asks again,
    and the body is stored twice."""

    name = "journal"
    codes = frozenset({CODE})
    is_polling = False

    def __init__(self, topics: Topics, appends: Appends[Request], outbox: Outbox) -> None:
        self._topics, self._appends, self._outbox = topics, appends, outbox

    def on_request(self, request: Request) -> Answer:
        """Take a body. Its answer follows when it is stored."""
        queue, body = self._topics.queue(TOPIC, 0), request.command.body
        if queue is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"the topic {TOPIC} does not exist")
        if len(body) > self._appends.body_bytes_max:
            remark = f"the body has {len(body)} bytes, at most {self._appends.body_bytes_max} are stored"
            return request.reply(ResponseCode.MESSAGE_ILLEGAL, remark)
        request.command.body = b""  # what waits is small
        if not self._appends.append(request, queue, body, b"", self._appends.own_origin()):
            return request.reply(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many bodies wait already, try again later")
        return Wait()

    def turn(self, now_ms: int) -> bool:
        """Answer the requests whose bodies have their result."""
        results = list(self._appends.results())
        for result in results:
            self._answer(result)
        return bool(results)

    def _answer(self, result: Result[Request]) -> None:
        request = result.what
        if result.is_stored:
            answer = request.reply(ext_fields={"queueOffset": str(result.queue_offset)})
        else:
            answer = request.reply(result.code, f"the body is not stored: cause {result.cause}")
        self._outbox.reply(request, answer)

    @property
    def has_news(self) -> bool:
        """True if a result waits."""
        return self._appends.has_answers

    @property
    def is_idle(self) -> bool:
        """True if no request waits."""
        return not self._appends.in_flight

    def save_if_due(self, now_ms: int) -> None:
        """Nothing is to be saved."""

    def close(self) -> None:
        """Bodies that write has taken may be stored without an answer."""
