"""The engine: one thread that owns the models, and what waits for it."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from calyrex.generation import end_ids
from calyrex.serve.answer import Answer
from calyrex.serve.batch import Batch, Row
from calyrex.serve.prefill import Prefill, choose_group
from calyrex.serve.prefixes import PrefixStore
from calyrex.serve.request import Failure, Generation
from calyrex.serve.room import Room
from calyrex.serve.sampling import Chooser, read_processors
from calyrex.serve.served import Served

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

_BROKEN = "the server failed while it answered; its log says why"
_STOPPING = "the server stops"


class QueueFullError(Exception):
    """No more requests can wait."""


class StoppingError(Exception):
    """The engine takes no more requests."""


class Engine:
    """Answers requests on a thread of its own, all that run together token by token.

    Attributes:
        served: the models.
        prefixes: system prompts that were read.
        has_failed: whether the thread ended without being asked to.
    """

    def __init__(
        self, served: Served, *, max_batch: int = 32, max_batch_tokens: int = 65536, max_waiting: int = 64
    ) -> None:
        """Create the engine; ``start`` starts it.

        Args:
            served: the models, which are the engine's alone from now on.
            max_batch: answers that are generated at the same time at most.
            max_batch_tokens: tokens of their prompts and answers at most, padding included.
            max_waiting: answers that may wait for a place at most.
        """
        self.served = served
        self.max_batch = max_batch
        self.max_batch_tokens = max_batch_tokens
        self.max_waiting = max_waiting
        self.prefixes = PrefixStore()
        base = served.model.get_base_model() if isinstance(served.model, PeftModel) else served.model
        self._processors = read_processors(cast(PreTrainedModel, base))
        self._end_ids = end_ids(served.model)
        self._condition = threading.Condition()
        self._waiting: list[Generation] = []
        self._tasks: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._reading: list[Generation] = []
        self._prefill: Prefill | None = None
        self._batches = {name: Batch(served, model) for name, model in served.models.items()}
        self.has_failed = False
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="calyrex-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether requests are answered."""
        return self._thread.is_alive()

    @property
    def num_waiting(self) -> int:
        """Answers that wait for a place."""
        return sum(generation.num_answers for generation in list(self._waiting)) + len(self._tasks)

    @property
    def num_running(self) -> int:
        """Answers that are generated now."""
        reading = sum(generation.num_answers for generation in list(self._reading))
        return reading + sum(len(batch.all_rows) for batch in self._batches.values())

    def submit(self, generation: Generation) -> None:
        """Let a request wait for its answers, which its ``emit`` is told.

        Raises:
            QueueFullError: too many wait.
            StoppingError: the engine stops.
        """
        with self._condition:
            self.require_room(generation.num_answers)
            self._waiting.append(generation)
            self._condition.notify()

    def run(self, task: Callable[[], Result]) -> "Future[Result]":
        """Let a task with the models wait for its turn between two tokens.

        Raises:
            QueueFullError: too many wait.
            StoppingError: the engine stops.
        """
        future: Future[Result] = Future()
        with self._condition:
            self.require_room()
            self._tasks.append((task, future))
            self._condition.notify()
        return future

    def cancel(self, generation: Generation) -> None:
        """Give up a request: what was not answered yet is not answered."""
        with self._condition:
            generation.is_cancelled = True
            self._condition.notify()

    def stop(self, *, is_waiting: bool = True) -> None:
        """Stop after the next token; whatever is not answered yet is told so.

        Args:
            is_waiting: whether to return only when it has stopped.
        """
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if is_waiting:
            self._thread.join()

    def require_room(self, num_answers: int = 1) -> None:
        """Make sure that a request could wait now.

        Raises:
            QueueFullError: too many wait.
            StoppingError: the engine stops.
        """
        if self._is_stopping or not self.is_alive:
            raise StoppingError
        if self.num_waiting + num_answers > self.max_waiting:
            raise QueueFullError

    @torch.inference_mode()
    def _run(self) -> None:
        try:
            while self._wait():
                self._work()
        finally:
            with self._condition:
                self.has_failed = not self._is_stopping
                self._is_stopping = True
            self._fail_all()

    def _wait(self) -> bool:
        """Wait for something to do; return False when the engine is to stop."""
        with self._condition:
            while not self._is_stopping and not self._waiting and not self._tasks and self._is_idle():
                self._condition.wait()
            self._waiting = [generation for generation in self._waiting if not generation.is_cancelled]
            return not self._is_stopping

    def _is_idle(self) -> bool:
        return not self._reading and all(batch.is_empty for batch in self._batches.values())

    def _work(self) -> None:
        """Run a task, read a part of the waiting prompts, and add a token to all running answers."""
        try:
            self._run_task()
            self._read_prompts()
            for batch in self._batches.values():
                batch.step()
        except RuntimeError:  # torch's own, such as a lack of memory; the next requests may be smaller
            logger.exception("the engine failed and goes on without what ran")
            self.prefixes.clear()
            self._fail_running(Failure(_BROKEN))

    def _run_task(self) -> None:
        with self._condition:
            if not self._tasks:
                return
            task, future = self._tasks.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(task())
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _read_prompts(self) -> None:
        if self._prefill is None:
            self._choose_prompts()
            if not self._reading:
                return
            self._prefill = Prefill(self.served, self.prefixes, self._reading)
        is_wanted = not all(generation.is_cancelled for generation in self._reading)
        if is_wanted and not self._prefill.is_done:
            self._prefill.advance()
        if self._prefill.is_done or not is_wanted:
            if is_wanted:
                self._let_join(self._prefill)
            self._reading, self._prefill = [], None

    def _choose_prompts(self) -> None:
        with self._condition:
            room = Room(self.max_batch, self.max_batch_tokens)
            for batch in self._batches.values():
                for row in batch.all_rows:
                    room.take(row.answer.generation, num_answers=1)
            self._reading = choose_group(self._waiting, self.prefixes, room)
            chosen = set(map(id, self._reading))
            self._waiting = [generation for generation in self._waiting if id(generation) not in chosen]

    def _let_join(self, prefill: Prefill) -> None:
        for generation, piece in zip(prefill.group, prefill.pieces(), strict=True):
            for index in range(generation.num_answers):
                answer = Answer(generation, index, self.served.tokenizer, self._end_ids)
                chooser = Chooser(generation.sampling, index, self._processors, self.served.model.device)
                row = Row(answer, chooser, piece.length, generation.input_ids[-1])
                self._batches[generation.model.name].join(row, piece)

    def _fail_running(self, failure: Failure) -> None:
        failed = {id(generation): generation for generation in self._reading}
        self._reading, self._prefill = [], None
        for batch in self._batches.values():
            failed |= {id(answer.generation): answer.generation for answer in batch.leave()}
        for generation in failed.values():
            generation.emit(failure)

    def _fail_all(self) -> None:
        failure = Failure(_STOPPING, is_stopping=True)
        self._fail_running(failure)
        with self._condition:
            waiting, self._waiting = self._waiting, []
            tasks = list(self._tasks)
            self._tasks.clear()
        for generation in waiting:
            generation.emit(failure)
        for _, future in tasks:
            if future.set_running_or_notify_cancel():
                future.set_exception(StoppingError())
