"""PostgreSQL: a claim that spends rates, as one statement. The rule is that of ``flow/rates.py``.

It is for queues in which nothing but rates holds lanes up: each lane that would be looked at has a gate of one window.
If one has another gate, or if delayed entries are due, the statement changes nothing and says so: then lanes are
locked, read and written one after the other. If rows of lanes are to be made, it makes them and has to be run again.

What holds it together: it locks lanes by their numbers and waits for none, one clock behind the locks is that of all
rates, and a lane that changed since the statement began is let go, as what arrived in it since then is not seen.
Therefore a statement that lets an entry come to a lane leaves a ticket, or writes the row of the lane.
"""

from __future__ import annotations

from djqueue.backends.database.sql import text
from djqueue.backends.database.sql.text import LIMIT, NOW
from djqueue.flow.rates import FINEST, PAIR, PAIR_LENGTH

TAKEN_IN = 200
"""The most tickets, and the most lanes whose time has come, that one claim looks at."""
GATE = r"""'^\{{"w":\[\[([0-9]{{1,18}},){{4}}[0-9]{{1,18}}\]\]\}}$'"""
"""A gate of one window and nothing else, as ``Gate.written`` writes it, of numbers that fit a column."""
PAUSE = "'[[]0,'"
"""A gate with a limit of 0."""
HEAD = "'^[0-9]{{1,18}}( [0-9]{{1,18}}){{9}}$'"
"""The numbers of a rate."""
LOG = "substr(rates, strpos(rates, '|') + 1)"
"""Its grants; the whole text if there is no ``|``, which no log is like."""


def window(gate: str) -> str:
    """The numbers of the window of a gate, as ``Rate.written`` writes them."""
    return f"translate(substr({gate}, 8, length({gate}) - 10), ',', ' ')"


IS_SPENT_HERE = (
    f"gate ~ {GATE} AND gate !~ {PAUSE} AND (rates = '' OR (split_part(rates, '|', 1) "
    f"~ {HEAD} AND starts_with(rates, {window('gate')} || ' ') "
    f"AND translate({LOG}, '123456789', '000000000') = repeat('{PAIR % (0, 0)}', length({LOG}) / {PAIR_LENGTH})))"
)
"""That the rate of a lane can be read here."""
LANE = "SELECT seq, name, number, gate, rates, ctid::text AS version FROM djqueue_lane WHERE queue = %(queue)s AND"
LOOKING = f"""
tickets AS MATERIALIZED (
    SELECT seq, name, number, gate FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT {TAKEN_IN}),
seen AS MATERIALIZED (
    {LANE} name = ANY(ARRAY(SELECT name FROM tickets))
    UNION ({LANE} state = {text.LANE_READY} ORDER BY sort_key, sort_at LIMIT {LIMIT})
    UNION ({LANE} state = {text.LANE_SCHEDULED} AND sort_key = 0 AND sort_at <= {NOW}
        ORDER BY sort_at LIMIT {TAKEN_IN})),
calm AS MATERIALIZED (
    SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM seen WHERE NOT ({IS_SPENT_HERE}) OR (SELECT l.seq FROM djqueue_lane l
        WHERE l.queue = %(queue)s AND l.state = seen.number ORDER BY sort_key, sort_at LIMIT 1) IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM tickets t LEFT JOIN seen s ON s.name = t.name
        WHERE CASE WHEN s.seq IS NULL THEN t.gate !~ {GATE} OR t.gate ~ {PAUSE} ELSE t.gate NOT IN ('', s.gate) END)
    AND NOT EXISTS (SELECT 1 FROM djqueue_message WHERE {text.over(text.DELAYED)})
    AND NOT EXISTS (SELECT 1 FROM djqueue_message WHERE {text.over(text.LATER)}))"""
"""What there is to look at, and whether this statement can do it."""

MAKING = f"""
made AS MATERIALIZED (
    INSERT INTO djqueue_lane (queue, {text.LANE.removeprefix("seq, ")})
    SELECT DISTINCT ON (name) %(queue)s, name, t.number, gate, 0, {NOW}, 0, '', '', {text.LANE_CLOSED}, 0, 0
    FROM tickets t WHERE EXISTS (SELECT 1 FROM calm) AND NOT EXISTS (SELECT 1 FROM seen s WHERE s.name = t.name)
    ORDER BY name, t.seq DESC ON CONFLICT (queue, name) DO NOTHING RETURNING 1),
at_work AS MATERIALIZED (SELECT 1 FROM calm WHERE NOT EXISTS (SELECT 1 FROM made))"""
"""Makes the rows of new lanes, in the order of their names, behind lanes that wait. Then nothing else is done."""

NUMBERS = "limit_ span ways buffer margin asked fixed last warm total".split()
NUMBERED = ", ".join(f"n[{place}] AS {name}" for place, name in enumerate(NUMBERS, 1))
HOLDING = f"""
held AS MATERIALIZED (
    SELECT l.*, l.ctid::text AS version FROM djqueue_lane l
    WHERE l.seq = ANY(ARRAY(SELECT seq FROM seen WHERE EXISTS (SELECT 1 FROM at_work)))
    ORDER BY l.seq FOR UPDATE SKIP LOCKED),
moment AS MATERIALIZED (
    SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint AS now FROM (SELECT count(*) FROM held) h),
rate AS MATERIALIZED (
    SELECT h.seq, h.name, h.number, h.in_flight, h.turn, h.not_before, h.paused_reason, h.rates, moment.now,
        {NUMBERED}, log, coalesce(array_length(pairs, 1), 0) / 2 AS length, pairs[array_length(pairs, 1) - 1] AS newest,
        pairs[array_length(pairs, 1)] AS newest_number, first, used, oldest
    FROM held h JOIN seen s ON s.seq = h.seq AND s.version = h.version CROSS JOIN moment,
    LATERAL (SELECT CASE WHEN h.rates = '' THEN {window("h.gate")} || ' 0 0 0 0 0|'
        ELSE h.rates END AS whole OFFSET 0) w,
    LATERAL (SELECT string_to_array(split_part(whole, '|', 1), ' ')::bigint[] AS n, split_part(whole, '|', 2) AS log,
        string_to_array(nullif(rtrim(split_part(whole, '|', 2)), ''), ' ')::bigint[] AS pairs OFFSET 0) r,
    LATERAL (SELECT min(i) AS first FROM generate_series(1, array_length(pairs, 1) / 2) i
        WHERE pairs[2 * i - 1] > moment.now - n[2]) f,
    LATERAL (SELECT coalesce(sum(pairs[2 * i]), 0)::bigint AS used, pairs[2 * first - 1] AS oldest
        FROM generate_series(first, array_length(pairs, 1) / 2) i) young),
ruled AS MATERIALIZED (
    SELECT *, CASE WHEN ways %% 2 = 1 AND limit_ > 1 THEN (span + limit_ - 1) / limit_ ELSE 0 END AS spacing,
        ways >= 2 AS is_elastic, CASE WHEN limit_ > {FINEST} THEN greatest(1, span / {FINEST}) ELSE 1 END AS grain
    FROM rate)"""
"""Lanes that are ours now, with their rates: ``used`` by the grants from the pair ``first`` on, the first younger than
the window. Behind it they may be older, after a step of the clock or if a grant was moved to a later moment."""


def room(used: str, last: str, warm: str) -> str:
    """How many may leave by a rate: ``capacity`` of ``flow/rates.py``."""
    return (
        f"(CASE WHEN spacing = 0 THEN greatest(limit_ - {used}, 0) "
        f"WHEN is_elastic AND {warm} >= limit_ AND limit_ - {used} > buffer THEN limit_ - {used} - buffer "
        f"WHEN {used} < limit_ AND {last} + spacing <= now THEN 1 ELSE 0 END)"
    )


HEADS = f"""
open AS MATERIALIZED (
    SELECT *, CASE WHEN paused_reason <> '' OR not_before > now THEN 0 ELSE {room("used", "last", "warm")} END AS room
    FROM ruled),
heads AS MATERIALIZED (
    SELECT o.number, o.turn, o.room, m.seq, m.sort_key AS rank,
        row_number() OVER (PARTITION BY o.number ORDER BY m.sort_key, m.sort_at, m.seq) AS nth
    FROM open o, LATERAL (SELECT seq, sort_key, sort_at FROM djqueue_message
        WHERE queue = %(queue)s AND state = o.number ORDER BY sort_key, sort_at, seq
        LIMIT least(o.room, {LIMIT}) + 1) m)"""
"""The first entries of these lanes, and one more of each."""


def picking(lifo: bool) -> str:
    """Higher priority first; at equal ones entries in no lane and lanes alternate, and lanes take turns."""
    way = "DESC" if lifo else "ASC"
    return f"""
line AS (
    SELECT seq, rank, row_number() OVER (PARTITION BY rank ORDER BY nth, turn, number) AS place, 1 AS laned
    FROM heads WHERE nth <= room
    UNION ALL SELECT seq, rank, row_number() OVER (PARTITION BY rank ORDER BY sort_at {way}, seq {way}), 0 FROM free),
picked AS MATERIALIZED (
    SELECT * FROM (SELECT *, row_number() OVER (ORDER BY rank, place, laned = %(laned_last)s) AS unit FROM line) u
    WHERE laned = 0 OR unit <= {LIMIT} - %(ahead)s ORDER BY unit LIMIT {LIMIT}),
chosen AS MATERIALIZED (
    SELECT seq FROM djqueue_message WHERE seq = ANY(ARRAY(SELECT seq FROM picked))
    AND (state = 0 OR state >= 16) FOR UPDATE SKIP LOCKED)"""


GRANT = "lpad(now::text, 16, '0') || ' ' || lpad((took + same)::text, 10, '0') || ' '"
SPENDING = f"""
spent AS MATERIALIZED (
    SELECT o.*, took, rank, used + took AS used_now, coalesce(oldest, now) AS since,
        CASE WHEN took = 0 THEN last WHEN spacing > 0 THEN now ELSE 0 END AS last_now,
        CASE WHEN took = 0 THEN warm WHEN is_elastic THEN warm + took ELSE 0 END AS warm_now,
        CASE WHEN first IS NOT NULL AND newest / grain = now / grain THEN newest_number ELSE 0 END AS same
    FROM open o,
    LATERAL (SELECT count(*) AS took FROM got WHERE got.lane_number = o.number) t
    LEFT JOIN LATERAL (SELECT rank FROM heads h WHERE h.number = o.number
        AND NOT EXISTS (SELECT 1 FROM got WHERE got.seq = h.seq) ORDER BY nth LIMIT 1) next ON true),
written AS MATERIALIZED (
    SELECT seq, number, rank, in_flight, paused_reason,
        CASE WHEN took = 0 THEN rates ELSE concat_ws(' ', limit_, span, ways, buffer, margin, asked, fixed, last_now,
            warm_now, used_now) || '|' || substr(log, {PAIR_LENGTH} * (coalesce(first, length + 1) - 1)::int + 1,
            {PAIR_LENGTH} * greatest(length - coalesce(first, length + 1) + 1 - (same > 0)::int, 0)::int)
            || {GRANT} END AS rates_now,
        CASE WHEN took = 0 THEN turn ELSE now END AS turn_now,
        greatest(not_before, CASE WHEN took > 0 THEN now ELSE newest END + 2 * span) AS expires,
        greatest(not_before, CASE WHEN {room("used_now", "last_now", "warm_now")} > 0 THEN 0
            WHEN used_now >= limit_ THEN since + span
            WHEN is_elastic AND warm_now >= limit_ THEN least(last_now + spacing, since + span)
            ELSE last_now + spacing END) AS opens, now
    FROM spent),
placed AS MATERIALIZED (
    SELECT *, CASE WHEN paused_reason <> '' THEN {text.LANE_CLOSED}
        WHEN rank IS NULL AND in_flight > 0 THEN {text.LANE_CLOSED}
        WHEN rank IS NULL OR opens > now THEN {text.LANE_SCHEDULED} ELSE {text.LANE_READY} END AS place,
        rank IS NULL AND paused_reason = '' AND in_flight <= 0 AND expires <= now AS is_idle
    FROM written),
written_lanes AS (
    UPDATE djqueue_lane l SET rates = rates_now, turn = turn_now, state = place,
        sort_key = CASE place WHEN {text.LANE_READY} THEN rank ELSE 0 END,
        sort_at = CASE WHEN place <> {text.LANE_SCHEDULED} THEN turn_now WHEN rank IS NULL THEN expires ELSE opens END
    FROM placed p WHERE l.seq = p.seq AND NOT is_idle RETURNING l.state, l.sort_at),
forgotten AS (DELETE FROM djqueue_lane l USING placed p WHERE l.seq = p.seq AND is_idle),
taken_in AS (
    DELETE FROM djqueue_ticket WHERE seq = ANY(ARRAY(SELECT t.seq FROM tickets t JOIN open o ON o.name = t.name)))"""
"""What each lane has spent, and where it belongs now: ``opens`` may be too early, and never too late."""
SCHEDULED = f"queue = %(queue)s AND state = {text.LANE_SCHEDULED} AND sort_key = 0 AND sort_at > {NOW}"
RESULT = f"""
SELECT EXISTS (SELECT 1 FROM calm), (SELECT now FROM moment), EXISTS (SELECT 1 FROM seen),
    EXISTS (SELECT 1 FROM written_lanes WHERE state = {text.LANE_READY})
        OR (SELECT count(*) FROM seen) > (SELECT count(*) FROM open)
        OR (SELECT count(*) FROM seen) >= least({LIMIT}, {TAKEN_IN})
        OR EXISTS (SELECT 1 FROM tickets t WHERE NOT EXISTS (SELECT 1 FROM open o WHERE o.name = t.name)),
    EXISTS (SELECT 1 FROM made),
    ({text.next_of(text.DELAYED)}),
    least((SELECT min(sort_at) FROM written_lanes WHERE state = {text.LANE_SCHEDULED}),
        (SELECT sort_at FROM djqueue_lane WHERE {SCHEDULED} ORDER BY sort_at LIMIT 1),
        ({text.next_of(text.LATER)})),
    g.* FROM (SELECT 1) one
    LEFT JOIN (SELECT got.* FROM got JOIN picked USING (seq) ORDER BY unit) g ON true"""


def spending(lifo: bool) -> str:
    """The statement. The limit is a number in its text: with a parameter a server may plan for any number.

    ``lifo``: entries in no lane leave in the reverse order of arrival at equal priority.
    """
    rank, order = ("~sort_key", text.BACKWARDS) if lifo else ("sort_key", text.ORDER)
    free = f"""
free AS MATERIALIZED (
    SELECT seq, {rank} AS rank, sort_at FROM djqueue_message
    WHERE queue = %(queue)s AND state = 0 AND EXISTS (SELECT 1 FROM at_work)
    {order} LIMIT {LIMIT} FOR UPDATE SKIP LOCKED)"""
    state = f"CASE WHEN state = 0 THEN {text.LEASED} ELSE {text.OUT} END"
    lease = text.leasing("(SELECT now FROM moment) + %(lease)s", state=state)
    got = f"""
got AS (
    UPDATE djqueue_message SET {lease}
    WHERE seq = ANY(ARRAY(SELECT seq FROM chosen)) RETURNING {text.ENTRY})"""
    return f"WITH{LOOKING},{MAKING},{HOLDING},{HEADS},{free},{picking(lifo)},{got},{SPENDING}{RESULT}"


SPENT = {lifo: spending(lifo) for lifo in (False, True)}
"""By whether the queue is ``lifo``."""
FOUND = 7
"""The number of columns before the columns of an entry."""
