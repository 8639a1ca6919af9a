"""What a server counts, for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from calyrex.serve.engine import Engine
from calyrex.serve.prefixes import PrefixStore

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """Counters of one server, in a registry of its own.

    Attributes:
        requests: requests by path and status.
        seconds: seconds from request to complete answer, by path.
        first_token: seconds from request to the first token, by model.
        prompt_tokens: tokens of prompts, by model.
        answer_tokens: tokens of answers, by model.
    """

    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("calyrex_requests", "Requests", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "calyrex_request_seconds", "Seconds to the complete answer", ["path"], buckets=_SECONDS, registry=registry
        )
        self.first_token = Histogram(
            "calyrex_first_token_seconds", "Seconds to the first token", ["model"], buckets=_SECONDS, registry=registry
        )
        self.prompt_tokens = Counter("calyrex_prompt_tokens", "Tokens of prompts", ["model"], registry=registry)
        self.answer_tokens = Counter("calyrex_answer_tokens", "Tokens of answers", ["model"], registry=registry)
        prefixes = engine.prefixes
        gauges = {
            "running_answers": ("Answers that are generated now", lambda: engine.num_running),
            "waiting_answers": ("Answers that wait for a place", lambda: engine.num_waiting),
            "prefix_tokens": ("Tokens of system prompts that are kept", lambda: prefixes.num_tokens),
        }
        for name, (help_text, read) in gauges.items():
            Gauge(f"calyrex_{name}", help_text, registry=registry).set_function(read)

        registry.register(_PrefixCounts(prefixes))

    def render(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)


class _PrefixCounts(Collector):
    """What the store of system prompts counts itself."""

    def __init__(self, prefixes: PrefixStore) -> None:
        self.prefixes = prefixes

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counters as they stand."""
        hits, misses = self.prefixes.num_hits, self.prefixes.num_misses
        yield CounterMetricFamily("calyrex_prefix_hits", "Requests whose system prompt was kept", value=hits)
        yield CounterMetricFamily("calyrex_prefix_misses", "Requests whose system prompt was new", value=misses)
