"""The queue of files that Lethe has without a broker, kept usable on a full disk.

kombu's own writes a message where workers look for it, and leaves an empty file when the disk is full. Whoever takes
that file cannot read it and ends, so a full disk took the workers down, and with them everything that `up` keeps.
"""

import logging
from contextlib import suppress
from pathlib import Path
from queue import Empty
from time import monotonic
from uuid import uuid4

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.encoding import str_to_bytes
from kombu.utils.json import dumps

logger = logging.getLogger("lethe.queue")


def install() -> None:
    """Have `filesystem://` mean this transport. Before the first connection is made."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"


class Channel(filesystem.Channel):
    def _put(self, queue, payload, **kwargs):
        """A message appears whole, or not at all. Raises ChannelError when it cannot be written."""
        path = Path(self.data_folder_out) / f"{round(monotonic() * 1000)}_{uuid4()}.{queue}.msg"
        draft = path.with_suffix(".new")
        try:
            draft.write_bytes(str_to_bytes(dumps(payload)))
            draft.rename(path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise ChannelError(f"The message {path.name} cannot be written: {error.strerror}.") from error

    def _get(self, queue):
        """The next message that can be read; one that cannot is gone, and its work is found by the sweepers."""
        while True:
            try:
                return super()._get(queue)
            except Empty:
                raise
            except ValueError:
                logger.warning("a message of the queue %s was cut off and is left out", queue)

    def get_table(self, exchange):
        try:
            return super().get_table(exchange)
        except ValueError:
            return []

    def _queue_bind(self, exchange, routing_key, pattern, queue):
        """Bind the queue; a list of bindings that was cut off begins anew."""
        try:
            super()._queue_bind(exchange, routing_key, pattern, queue)
        except ValueError:
            self._exchange_file(exchange).unlink(missing_ok=True)
            super()._queue_bind(exchange, routing_key, pattern, queue)


class Transport(filesystem.Transport):
    Channel = Channel
