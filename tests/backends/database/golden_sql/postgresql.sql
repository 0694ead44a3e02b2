-- postgresql
-- NOW is (extract(epoch from statement_timestamp()) * 1000000)::bigint


-- put: one entry

INSERT INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %(queue)s, %(id)s, %(body)s, %(neg_priority)s, '', %(command)s, '', 0, 0, 0, '', 0, 0, '', NOW, NOW, 0,
    %(neg_priority)s, NOW
)
ON CONFLICT (queue, id) DO NOTHING
RETURNING id,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %(queue)s)::text END
    );


-- put: two entries

WITH e AS (
    SELECT nextval('djqueue_message_seq_seq') AS seq, *,
        CASE WHEN run_at > 0 THEN run_at ELSE NOW + delay END AS due
    FROM (
        VALUES (
            CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS int), CAST(%s AS bigint), CAST(%s AS bigint),
            CAST(%s AS text), CAST(%s AS text), CAST(%s AS text), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text), CAST(%s AS bigint)
        ),
        (
            CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS int), CAST(%s AS bigint), CAST(%s AS bigint),
            CAST(%s AS text), CAST(%s AS text), CAST(%s AS text), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text), CAST(%s AS bigint)
        )
    ) a (
        id, body, neg_priority, delay, run_at, lane, command, errors, attempts, failures, lost, gate,
        lane_number
    )
)
INSERT INTO djqueue_message (
    seq, queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number,
    token, owner, created, due_since, state, sort_key, sort_at
)
SELECT seq, %s, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0,
    '', NOW, due,
    CASE WHEN due > NOW THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END WHEN lane_number > 0 THEN lane_number
        ELSE 0 END, CASE WHEN due > NOW THEN 0 ELSE neg_priority END, due
FROM e
ORDER BY id COLLATE "C"
ON CONFLICT (queue, id) DO NOTHING
RETURNING id,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %s)::text END
    );


-- put: eight entries

WITH e AS (
    SELECT nextval('djqueue_message_seq_seq') AS seq, *,
        CASE WHEN run_at > 0 THEN run_at ELSE NOW + delay END AS due
    FROM (
        SELECT c0, %s::bytea, %s::int, %s::bigint, %s::bigint, %s::text, %s::text, %s::text, %s::int, %s::int,
            %s::int, %s::text, %s::bigint
        FROM unnest(%s::text[]) x (c0)
    ) a (
        id, body, neg_priority, delay, run_at, lane, command, errors, attempts, failures, lost, gate,
        lane_number
    )
)
INSERT INTO djqueue_message (
    seq, queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number,
    token, owner, created, due_since, state, sort_key, sort_at
)
SELECT seq, %s, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0,
    '', NOW, due,
    CASE WHEN due > NOW THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END WHEN lane_number > 0 THEN lane_number
        ELSE 0 END, CASE WHEN due > NOW THEN 0 ELSE neg_priority END, due
FROM e
ORDER BY id COLLATE "C"
ON CONFLICT (queue, id) DO NOTHING
RETURNING id,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %s)::text END
    );


-- put: in a lane

WITH e AS (
    INSERT INTO djqueue_message (
        queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number,
        token, owner, created, due_since, state, sort_key, sort_at
    )
    VALUES (
        %(queue)s, %(id)s, %(body)s, %(neg_priority)s, %(lane)s, %(command)s, %(errors)s, %(attempts)s,
        %(failures)s, %(lost)s, %(gate)s, %(lane_number)s, 0, '', NOW,
        CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END,
        CASE WHEN CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END > NOW THEN CASE WHEN
            %(lane_number)s > 0 THEN 3 ELSE 1 END WHEN %(lane_number)s > 0 THEN %(lane_number)s ELSE 0 END,
        CASE WHEN CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END > NOW THEN 0 ELSE
            %(neg_priority)s END, CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END
    )
    ON CONFLICT (queue, id) DO NOTHING
    RETURNING id
),
t AS (
    INSERT INTO djqueue_ticket (queue, created, name, number, gate)
    SELECT %(queue)s, NOW, %(lane)s, %(lane_number)s, %(gate)s
    FROM e
)
SELECT id,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %(queue)s)::text END
    )
FROM e;


-- put: once in 60 seconds

WITH e AS MATERIALIZED (
    SELECT nextval('djqueue_message_seq_seq') AS seq, *,
        CASE WHEN run_at > 0 THEN run_at ELSE NOW + delay END AS due
    FROM (
        VALUES (
            CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS int), CAST(%s AS bigint), CAST(%s AS bigint),
            CAST(%s AS text), CAST(%s AS text), CAST(%s AS text), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text), CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS bigint)
        ),
        (
            CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS int), CAST(%s AS bigint), CAST(%s AS bigint),
            CAST(%s AS text), CAST(%s AS text), CAST(%s AS text), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text), CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS bigint)
        )
    ) a (
        id, body, neg_priority, delay, run_at, lane, command, errors, attempts, failures, lost, gate,
        lane_number, name, ttl
    )
),
g AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT DISTINCT ON (name COLLATE "C") name, convert_to(id, 'UTF8'), NOW + ttl, 0
    FROM e
    WHERE name <> ''
      AND (SELECT o.seq FROM djqueue_message o WHERE o.queue = %s AND o.id = e.id) IS NULL
    ORDER BY name COLLATE "C", seq
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
    WHERE djqueue_fact.until <= NOW
    RETURNING name, value
)
INSERT INTO djqueue_message (
    seq, queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number,
    token, owner, created, due_since, state, sort_key, sort_at
)
SELECT seq, %s, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0,
    '', NOW, due,
    CASE WHEN due > NOW THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END WHEN lane_number > 0 THEN lane_number
        ELSE 0 END, CASE WHEN due > NOW THEN 0 ELSE neg_priority END, due
FROM e
WHERE name = '' OR EXISTS (SELECT 1 FROM g WHERE g.name = e.name AND g.value = convert_to(e.id, 'UTF8'))
ORDER BY id COLLATE "C"
ON CONFLICT (queue, id) DO NOTHING
RETURNING id,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %s)::text END
    );


-- put: unique

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter
RETURNING name, value, COALESCE(until > NOW, true);
SELECT NOW, m.id, m.state
FROM (SELECT 1 AS one) x
LEFT JOIN djqueue_message m ON m.queue = %s
  AND m.id IN (%s, %s);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
-- WITH as in: put: two entries
COMMIT;


-- put: debounced

BEGIN;
-- INSERT as in: put: unique
-- SELECT as in: put: unique
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
-- WITH as in: put: two entries
COMMIT;


-- put: debounced, one waits and is postponed

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter
RETURNING name, value, COALESCE(until > NOW, true);
-- SELECT as in: put: unique
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s) AND state NOT IN (2, 4) FOR UPDATE SKIP LOCKED;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
UPDATE djqueue_message SET sort_at = %s, due_since = %s WHERE queue = %s AND id = %s AND state IN (1, 3);
COMMIT;


-- claim: nothing is there

WITH due AS (
    UPDATE djqueue_message
    SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END,
        sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            ORDER BY sort_at LIMIT 500
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
      AND NOT EXISTS (SELECT 1 FROM due)
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT NULL, (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;


-- claim: two are ready

-- WITH as in: claim: nothing is there
SELECT NOW,
    (SELECT sort_key FROM djqueue_message WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key LIMIT 1),
    (
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ), (SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1),
    (SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1),
    (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    );


-- claim: more are asked for than are ready

-- WITH as in: claim: nothing is there


-- claim: one is delayed and due

-- WITH as in: claim: nothing is there
WITH due AS (SELECT 1 LIMIT 0),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT NULL, (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;
-- SELECT as in: claim: two are ready


-- claim: from a lane, to which something came

-- WITH as in: claim: nothing is there
WITH tickets AS MATERIALIZED (
    SELECT seq, name, number, gate FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 200
),
seen AS MATERIALIZED (
    SELECT seq, name, number, gate, rates, ctid::text AS version
    FROM djqueue_lane
    WHERE queue = %(queue)s
      AND name = ANY(ARRAY(SELECT name FROM tickets))
    UNION (
        SELECT seq, name, number, gate, rates, ctid::text AS version
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 0
        ORDER BY sort_key, sort_at LIMIT 2
    )
    UNION (
        SELECT seq, name, number, gate, rates, ctid::text AS version
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
          AND sort_at <= NOW
        ORDER BY sort_at LIMIT 200
    )
),
calm AS MATERIALIZED (
    SELECT 1
    WHERE NOT EXISTS (
        SELECT 1
        FROM seen
        WHERE NOT (
            gate ~ '^\{"w":\[\[([0-9]{1,18},){4}[0-9]{1,18}\]\]\}$'
              AND gate !~ '[[]0,'
              AND (
                  rates = '' OR (
                      split_part(rates, '|', 1) ~ '^[0-9]{1,18}( [0-9]{1,18}){9}$'
                        AND starts_with(rates, translate(substr(gate, 8, length(gate) - 10), ',', ' ') || ' ')
                        AND translate(substr(rates, strpos(rates, '|') + 1), '123456789', '000000000') =
                            repeat(
                            '0000000000000000 0000000000 ', length(substr(rates, strpos(rates, '|') + 1)) / 28
                        )
                  )
              )
        ) OR (
            SELECT l.seq
            FROM djqueue_lane l
            WHERE l.queue = %(queue)s
              AND l.state = seen.number
            ORDER BY sort_key, sort_at LIMIT 1
        ) IS NOT NULL
    )
      AND NOT EXISTS (
          SELECT 1
          FROM tickets t
          LEFT JOIN seen s ON s.name = t.name
          WHERE CASE WHEN s.seq IS NULL THEN t.gate !~ '^\{"w":\[\[([0-9]{1,18},){4}[0-9]{1,18}\]\]\}$' OR
              t.gate ~ '[[]0,' ELSE t.gate NOT IN ('', s.gate) END
      )
      AND NOT EXISTS (
          SELECT 1
          FROM djqueue_message
          WHERE queue = %(queue)s
            AND state = 1
            AND sort_key = 0
            AND sort_at < NOW
      )
      AND NOT EXISTS (
          SELECT 1
          FROM djqueue_message
          WHERE queue = %(queue)s
            AND state = 3
            AND sort_key = 0
            AND sort_at < NOW
      )
),
made AS MATERIALIZED (
    INSERT INTO djqueue_lane (
        queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
    )
    SELECT DISTINCT ON (name) %(queue)s, name, t.number, gate, 0, NOW, 0, '', '', 1, 0, 0
    FROM tickets t
    WHERE EXISTS (SELECT 1 FROM calm)
      AND NOT EXISTS (SELECT 1 FROM seen s WHERE s.name = t.name)
    ORDER BY name, t.seq DESC
    ON CONFLICT (queue, name) DO NOTHING
    RETURNING 1
), at_work AS MATERIALIZED (SELECT 1 FROM calm WHERE NOT EXISTS (SELECT 1 FROM made)),
held AS MATERIALIZED (
    SELECT l.*, l.ctid::text AS version
    FROM djqueue_lane l
    WHERE l.seq = ANY(ARRAY(SELECT seq FROM seen WHERE EXISTS (SELECT 1 FROM at_work)))
    ORDER BY l.seq
    FOR UPDATE SKIP LOCKED
),
moment AS MATERIALIZED (
    SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint AS now FROM (SELECT count(*) FROM held) h
),
rate AS MATERIALIZED (
    SELECT h.seq, h.name, h.number, h.in_flight, h.turn, h.not_before, h.paused_reason, h.rates, moment.now,
        n[1] AS limit_, n[2] AS span, n[3] AS ways, n[4] AS buffer, n[5] AS margin, n[6] AS asked,
        n[7] AS fixed, n[8] AS last, n[9] AS warm, n[10] AS total, log,
        coalesce(array_length(pairs, 1), 0) / 2 AS length, pairs[array_length(pairs, 1) - 1] AS newest,
        pairs[array_length(pairs, 1)] AS newest_number, first, used, oldest
    FROM held h JOIN seen s ON s.seq = h.seq
      AND s.version = h.version
    CROSS JOIN moment,
        LATERAL (
            SELECT CASE WHEN h.rates = '' THEN translate(substr(h.gate, 8, length(h.gate) - 10), ',', ' ') ||
                ' 0 0 0 0 0|' ELSE h.rates END AS whole OFFSET 0
        ) w,
        LATERAL (
            SELECT string_to_array(split_part(whole, '|', 1), ' ')::bigint[] AS n,
                split_part(whole, '|', 2) AS log,
                string_to_array(nullif(rtrim(split_part(whole, '|', 2)), ''), ' ')::bigint[] AS pairs OFFSET 0
        ) r,
        LATERAL (
            SELECT min(i) AS first
            FROM generate_series(1, array_length(pairs, 1) / 2) i
            WHERE pairs[2 * i - 1] > moment.now - n[2]
        ) f,
        LATERAL (
            SELECT coalesce(sum(pairs[2 * i]), 0)::bigint AS used, pairs[2 * first - 1] AS oldest
            FROM generate_series(first, array_length(pairs, 1) / 2) i
        ) young
),
ruled AS MATERIALIZED (
    SELECT *, CASE WHEN ways % 2 = 1 AND limit_ > 1 THEN (span + limit_ - 1) / limit_ ELSE 0 END AS spacing,
        ways >= 2 AS is_elastic, CASE WHEN limit_ > 1000 THEN greatest(1, span / 1000) ELSE 1 END AS grain
    FROM rate
),
open AS MATERIALIZED (
    SELECT *,
        CASE WHEN paused_reason <> '' OR not_before > now THEN 0 ELSE (
            CASE WHEN spacing = 0 THEN greatest(limit_ - used, 0) WHEN is_elastic AND warm >= limit_ AND
                limit_ - used > buffer THEN limit_ - used - buffer WHEN used < limit_ AND last + spacing <=
                now THEN 1 ELSE 0 END
        ) END AS room
    FROM ruled
),
heads AS MATERIALIZED (
    SELECT o.number, o.turn, o.room, m.seq, m.sort_key AS rank,
        row_number() OVER (PARTITION BY o.number ORDER BY m.sort_key, m.sort_at, m.seq) AS nth
    FROM open o,
        LATERAL (
            SELECT seq, sort_key, sort_at
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = o.number
            ORDER BY sort_key, sort_at, seq LIMIT least(o.room, 2) + 1
        ) m
),
free AS MATERIALIZED (
    SELECT seq, sort_key AS rank, sort_at
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND EXISTS (SELECT 1 FROM at_work)
    ORDER BY sort_key, sort_at, seq LIMIT 2
    FOR UPDATE SKIP LOCKED
),
line AS (
    SELECT seq, rank, row_number() OVER (PARTITION BY rank ORDER BY nth, turn, number) AS place, 1 AS laned
    FROM heads
    WHERE nth <= room
    UNION ALL
    SELECT seq, rank, row_number() OVER (PARTITION BY rank ORDER BY sort_at ASC, seq ASC), 0
    FROM free
),
picked AS MATERIALIZED (
    SELECT *
    FROM (SELECT *, row_number() OVER (ORDER BY rank, place, laned = %(laned_last)s) AS unit FROM line) u
    WHERE laned = 0 OR unit <= 2 - %(ahead)s
    ORDER BY unit LIMIT 2
),
chosen AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE seq = ANY(ARRAY(SELECT seq FROM picked))
      AND (state = 0 OR state >= 16)
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = CASE WHEN state = 0 THEN 2 ELSE 4 END, sort_key = 0,
        sort_at = (SELECT now FROM moment) + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM chosen))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
),
spent AS MATERIALIZED (
    SELECT o.*, took, rank, used + took AS used_now, coalesce(oldest, now) AS since,
        CASE WHEN took = 0 THEN last WHEN spacing > 0 THEN now ELSE 0 END AS last_now,
        CASE WHEN took = 0 THEN warm WHEN is_elastic THEN warm + took ELSE 0 END AS warm_now,
        CASE WHEN first IS NOT NULL AND newest / grain = now / grain THEN newest_number ELSE 0 END AS same
    FROM open o, LATERAL (SELECT count(*) AS took FROM got WHERE got.lane_number = o.number) t
    LEFT JOIN LATERAL (
        SELECT rank
        FROM heads h
        WHERE h.number = o.number
          AND NOT EXISTS (SELECT 1 FROM got WHERE got.seq = h.seq)
        ORDER BY nth LIMIT 1
    ) next ON true
),
written AS MATERIALIZED (
    SELECT seq, number, rank, in_flight, paused_reason,
        CASE WHEN took = 0 THEN rates ELSE concat_ws(
            ' ', limit_, span, ways, buffer, margin, asked, fixed, last_now, warm_now, used_now
        ) || '|' || substr(
            log, 28 * (coalesce(first, length + 1) - 1)::int + 1,
            28 * greatest(length - coalesce(first, length + 1) + 1 - (same > 0)::int, 0)::int
        ) || lpad(now::text, 16, '0') || ' ' || lpad((took + same)::text, 10, '0') || ' ' END AS rates_now,
        CASE WHEN took = 0 THEN turn ELSE now END AS turn_now,
        greatest(not_before, CASE WHEN took > 0 THEN now ELSE newest END + 2 * span) AS expires,
        greatest(
            not_before,
            CASE WHEN (
                CASE WHEN spacing = 0 THEN greatest(limit_ - used_now, 0) WHEN is_elastic AND warm_now >=
                    limit_ AND limit_ - used_now > buffer THEN limit_ - used_now - buffer WHEN used_now <
                    limit_ AND last_now + spacing <= now THEN 1 ELSE 0 END
            ) > 0 THEN 0 WHEN used_now >= limit_ THEN since + span WHEN is_elastic AND warm_now >= limit_ THEN
                least(last_now + spacing, since + span) ELSE last_now + spacing END
        ) AS opens, now
    FROM spent
),
placed AS MATERIALIZED (
    SELECT *,
        CASE WHEN paused_reason <> '' THEN 1 WHEN rank IS NULL AND in_flight > 0 THEN 1 WHEN rank IS NULL OR
            opens > now THEN 2 ELSE 0 END AS place, rank IS NULL
      AND paused_reason = ''
      AND in_flight <= 0
      AND expires <= now AS is_idle
    FROM written
),
written_lanes AS (
    UPDATE djqueue_lane l
    SET rates = rates_now, turn = turn_now, state = place, sort_key = CASE place WHEN 0 THEN rank ELSE 0 END,
        sort_at = CASE WHEN place <> 2 THEN turn_now WHEN rank IS NULL THEN expires ELSE opens END
    FROM placed p
    WHERE l.seq = p.seq
      AND NOT is_idle
    RETURNING l.state, l.sort_at
), forgotten AS (DELETE FROM djqueue_lane l USING placed p WHERE l.seq = p.seq AND is_idle),
taken_in AS (
    DELETE
    FROM djqueue_ticket
    WHERE seq = ANY(ARRAY(SELECT t.seq FROM tickets t JOIN open o ON o.name = t.name))
)
SELECT EXISTS (SELECT 1 FROM calm), (SELECT now FROM moment), EXISTS (SELECT 1 FROM seen),
    EXISTS (SELECT 1 FROM written_lanes WHERE state = 0) OR (SELECT count(*) FROM seen) > (
        SELECT count(*) FROM open
    ) OR (SELECT count(*) FROM seen) >= least(2, 200) OR EXISTS (
        SELECT 1 FROM tickets t WHERE NOT EXISTS (SELECT 1 FROM open o WHERE o.name = t.name)
    ), EXISTS (SELECT 1 FROM made),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ),
    least(
        (SELECT min(sort_at) FROM written_lanes WHERE state = 2),
        (
            SELECT sort_at
            FROM djqueue_lane
            WHERE queue = %(queue)s
              AND state = 2
              AND sort_key = 0
              AND sort_at > NOW
            ORDER BY sort_at LIMIT 1
        ),
        (
            SELECT sort_at
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 3
              AND sort_key = 0
              AND sort_at >= NOW
            ORDER BY sort_at LIMIT 1
        )
    ), g.*
FROM (SELECT 1) one
LEFT JOIN (SELECT got.* FROM got JOIN picked USING (seq) ORDER BY unit) g ON true;
SELECT created, seq, name, number, gate,
    (SELECT l.seq FROM djqueue_lane l WHERE l.queue = t.queue AND l.name = t.name) IS NOT NULL
FROM djqueue_ticket t
WHERE queue = %s
ORDER BY created LIMIT %s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
INSERT INTO djqueue_lane (
    queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
)
VALUES (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0)
ON CONFLICT (queue, name) DO NOTHING;
BEGIN;
SELECT l.seq, l.name, l.number, l.gate, l.in_flight, l.turn, l.not_before, l.paused_reason, l.rates, l.state,
    l.sort_key, l.sort_at
FROM djqueue_lane l
WHERE name IN (%s)
  AND queue = %s
ORDER BY name
FOR UPDATE SKIP LOCKED;
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
SELECT NOW, x.*
FROM (SELECT 1) one
LEFT JOIN (
    SELECT e.*
    FROM unnest(%s::bigint[], %s::int[]) n (number, most)
    CROSS JOIN LATERAL (
        SELECT state, seq, sort_key, sort_at, lost
        FROM djqueue_message
        WHERE queue = %s
          AND state = n.number
        ORDER BY sort_key, sort_at, seq LIMIT n.most
    ) e
    UNION ALL
    SELECT l.*
    FROM unnest(%s::bigint[]) n (number)
    CROSS JOIN LATERAL (
        SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
        FROM djqueue_lane
        WHERE queue = %s
          AND state = n.number
        ORDER BY sort_key, sort_at LIMIT 1
    ) l
) x ON true;
UPDATE djqueue_message
SET state = %(leased)s, sort_key = 0, sort_at = :moment + %(lease)s, token = %(token)s, owner = %(owner)s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN djqueue_message.seq IN (:seqs) AND lost = 0 THEN 1 ELSE 0 END
WHERE seq = ANY(
    ARRAY(
        SELECT seq
        FROM djqueue_message
        WHERE djqueue_message.seq IN (:seqs)
          AND state >= 16
        FOR UPDATE SKIP LOCKED
    )
)
RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number;
UPDATE djqueue_lane l
SET gate = u.gate, in_flight = u.in_flight, turn = u.turn, not_before = u.not_before,
    paused_reason = u.paused_reason, rates = u.rates, state = u.state, sort_key = u.sort_key,
    sort_at = u.sort_at
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS int), CAST(%s AS bigint), CAST(%s AS bigint),
        CAST(%s AS text), CAST(%s AS text), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS bigint)
    )
) u (seq, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at)
WHERE l.seq = u.seq;
COMMIT;
-- SELECT as in: claim: two are ready


-- claim: from a lane with a limit and a window

-- WITH as in: claim: nothing is there
-- WITH as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- claim: from a lane within another

-- WITH as in: claim: nothing is there
-- WITH as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s, %s);
SELECT NOW;
INSERT INTO djqueue_lane (
    queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
)
VALUES (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0), (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0)
ON CONFLICT (queue, name) DO NOTHING;
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: two are ready


-- claim: from lanes and in no lane

-- WITH as in: claim: nothing is there
-- WITH as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: two are ready


-- claim: delayed and due in a lane

-- WITH as in: claim: nothing is there
WITH tickets AS MATERIALIZED (
    SELECT seq, name, number, gate FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 200
),
seen AS MATERIALIZED (
    SELECT seq, name, number, gate, rates, ctid::text AS version
    FROM djqueue_lane
    WHERE queue = %(queue)s
      AND name = ANY(ARRAY(SELECT name FROM tickets))
    UNION (
        SELECT seq, name, number, gate, rates, ctid::text AS version
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 0
        ORDER BY sort_key, sort_at LIMIT 1
    )
    UNION (
        SELECT seq, name, number, gate, rates, ctid::text AS version
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
          AND sort_at <= NOW
        ORDER BY sort_at LIMIT 200
    )
),
calm AS MATERIALIZED (
    SELECT 1
    WHERE NOT EXISTS (
        SELECT 1
        FROM seen
        WHERE NOT (
            gate ~ '^\{"w":\[\[([0-9]{1,18},){4}[0-9]{1,18}\]\]\}$'
              AND gate !~ '[[]0,'
              AND (
                  rates = '' OR (
                      split_part(rates, '|', 1) ~ '^[0-9]{1,18}( [0-9]{1,18}){9}$'
                        AND starts_with(rates, translate(substr(gate, 8, length(gate) - 10), ',', ' ') || ' ')
                        AND translate(substr(rates, strpos(rates, '|') + 1), '123456789', '000000000') =
                            repeat(
                            '0000000000000000 0000000000 ', length(substr(rates, strpos(rates, '|') + 1)) / 28
                        )
                  )
              )
        ) OR (
            SELECT l.seq
            FROM djqueue_lane l
            WHERE l.queue = %(queue)s
              AND l.state = seen.number
            ORDER BY sort_key, sort_at LIMIT 1
        ) IS NOT NULL
    )
      AND NOT EXISTS (
          SELECT 1
          FROM tickets t
          LEFT JOIN seen s ON s.name = t.name
          WHERE CASE WHEN s.seq IS NULL THEN t.gate !~ '^\{"w":\[\[([0-9]{1,18},){4}[0-9]{1,18}\]\]\}$' OR
              t.gate ~ '[[]0,' ELSE t.gate NOT IN ('', s.gate) END
      )
      AND NOT EXISTS (
          SELECT 1
          FROM djqueue_message
          WHERE queue = %(queue)s
            AND state = 1
            AND sort_key = 0
            AND sort_at < NOW
      )
      AND NOT EXISTS (
          SELECT 1
          FROM djqueue_message
          WHERE queue = %(queue)s
            AND state = 3
            AND sort_key = 0
            AND sort_at < NOW
      )
),
made AS MATERIALIZED (
    INSERT INTO djqueue_lane (
        queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
    )
    SELECT DISTINCT ON (name) %(queue)s, name, t.number, gate, 0, NOW, 0, '', '', 1, 0, 0
    FROM tickets t
    WHERE EXISTS (SELECT 1 FROM calm)
      AND NOT EXISTS (SELECT 1 FROM seen s WHERE s.name = t.name)
    ORDER BY name, t.seq DESC
    ON CONFLICT (queue, name) DO NOTHING
    RETURNING 1
), at_work AS MATERIALIZED (SELECT 1 FROM calm WHERE NOT EXISTS (SELECT 1 FROM made)),
held AS MATERIALIZED (
    SELECT l.*, l.ctid::text AS version
    FROM djqueue_lane l
    WHERE l.seq = ANY(ARRAY(SELECT seq FROM seen WHERE EXISTS (SELECT 1 FROM at_work)))
    ORDER BY l.seq
    FOR UPDATE SKIP LOCKED
),
moment AS MATERIALIZED (
    SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint AS now FROM (SELECT count(*) FROM held) h
),
rate AS MATERIALIZED (
    SELECT h.seq, h.name, h.number, h.in_flight, h.turn, h.not_before, h.paused_reason, h.rates, moment.now,
        n[1] AS limit_, n[2] AS span, n[3] AS ways, n[4] AS buffer, n[5] AS margin, n[6] AS asked,
        n[7] AS fixed, n[8] AS last, n[9] AS warm, n[10] AS total, log,
        coalesce(array_length(pairs, 1), 0) / 2 AS length, pairs[array_length(pairs, 1) - 1] AS newest,
        pairs[array_length(pairs, 1)] AS newest_number, first, used, oldest
    FROM held h JOIN seen s ON s.seq = h.seq
      AND s.version = h.version
    CROSS JOIN moment,
        LATERAL (
            SELECT CASE WHEN h.rates = '' THEN translate(substr(h.gate, 8, length(h.gate) - 10), ',', ' ') ||
                ' 0 0 0 0 0|' ELSE h.rates END AS whole OFFSET 0
        ) w,
        LATERAL (
            SELECT string_to_array(split_part(whole, '|', 1), ' ')::bigint[] AS n,
                split_part(whole, '|', 2) AS log,
                string_to_array(nullif(rtrim(split_part(whole, '|', 2)), ''), ' ')::bigint[] AS pairs OFFSET 0
        ) r,
        LATERAL (
            SELECT min(i) AS first
            FROM generate_series(1, array_length(pairs, 1) / 2) i
            WHERE pairs[2 * i - 1] > moment.now - n[2]
        ) f,
        LATERAL (
            SELECT coalesce(sum(pairs[2 * i]), 0)::bigint AS used, pairs[2 * first - 1] AS oldest
            FROM generate_series(first, array_length(pairs, 1) / 2) i
        ) young
),
ruled AS MATERIALIZED (
    SELECT *, CASE WHEN ways % 2 = 1 AND limit_ > 1 THEN (span + limit_ - 1) / limit_ ELSE 0 END AS spacing,
        ways >= 2 AS is_elastic, CASE WHEN limit_ > 1000 THEN greatest(1, span / 1000) ELSE 1 END AS grain
    FROM rate
),
open AS MATERIALIZED (
    SELECT *,
        CASE WHEN paused_reason <> '' OR not_before > now THEN 0 ELSE (
            CASE WHEN spacing = 0 THEN greatest(limit_ - used, 0) WHEN is_elastic AND warm >= limit_ AND
                limit_ - used > buffer THEN limit_ - used - buffer WHEN used < limit_ AND last + spacing <=
                now THEN 1 ELSE 0 END
        ) END AS room
    FROM ruled
),
heads AS MATERIALIZED (
    SELECT o.number, o.turn, o.room, m.seq, m.sort_key AS rank,
        row_number() OVER (PARTITION BY o.number ORDER BY m.sort_key, m.sort_at, m.seq) AS nth
    FROM open o,
        LATERAL (
            SELECT seq, sort_key, sort_at
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = o.number
            ORDER BY sort_key, sort_at, seq LIMIT least(o.room, 1) + 1
        ) m
),
free AS MATERIALIZED (
    SELECT seq, sort_key AS rank, sort_at
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND EXISTS (SELECT 1 FROM at_work)
    ORDER BY sort_key, sort_at, seq LIMIT 1
    FOR UPDATE SKIP LOCKED
),
line AS (
    SELECT seq, rank, row_number() OVER (PARTITION BY rank ORDER BY nth, turn, number) AS place, 1 AS laned
    FROM heads
    WHERE nth <= room
    UNION ALL
    SELECT seq, rank, row_number() OVER (PARTITION BY rank ORDER BY sort_at ASC, seq ASC), 0
    FROM free
),
picked AS MATERIALIZED (
    SELECT *
    FROM (SELECT *, row_number() OVER (ORDER BY rank, place, laned = %(laned_last)s) AS unit FROM line) u
    WHERE laned = 0 OR unit <= 1 - %(ahead)s
    ORDER BY unit LIMIT 1
),
chosen AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE seq = ANY(ARRAY(SELECT seq FROM picked))
      AND (state = 0 OR state >= 16)
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = CASE WHEN state = 0 THEN 2 ELSE 4 END, sort_key = 0,
        sort_at = (SELECT now FROM moment) + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM chosen))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
),
spent AS MATERIALIZED (
    SELECT o.*, took, rank, used + took AS used_now, coalesce(oldest, now) AS since,
        CASE WHEN took = 0 THEN last WHEN spacing > 0 THEN now ELSE 0 END AS last_now,
        CASE WHEN took = 0 THEN warm WHEN is_elastic THEN warm + took ELSE 0 END AS warm_now,
        CASE WHEN first IS NOT NULL AND newest / grain = now / grain THEN newest_number ELSE 0 END AS same
    FROM open o, LATERAL (SELECT count(*) AS took FROM got WHERE got.lane_number = o.number) t
    LEFT JOIN LATERAL (
        SELECT rank
        FROM heads h
        WHERE h.number = o.number
          AND NOT EXISTS (SELECT 1 FROM got WHERE got.seq = h.seq)
        ORDER BY nth LIMIT 1
    ) next ON true
),
written AS MATERIALIZED (
    SELECT seq, number, rank, in_flight, paused_reason,
        CASE WHEN took = 0 THEN rates ELSE concat_ws(
            ' ', limit_, span, ways, buffer, margin, asked, fixed, last_now, warm_now, used_now
        ) || '|' || substr(
            log, 28 * (coalesce(first, length + 1) - 1)::int + 1,
            28 * greatest(length - coalesce(first, length + 1) + 1 - (same > 0)::int, 0)::int
        ) || lpad(now::text, 16, '0') || ' ' || lpad((took + same)::text, 10, '0') || ' ' END AS rates_now,
        CASE WHEN took = 0 THEN turn ELSE now END AS turn_now,
        greatest(not_before, CASE WHEN took > 0 THEN now ELSE newest END + 2 * span) AS expires,
        greatest(
            not_before,
            CASE WHEN (
                CASE WHEN spacing = 0 THEN greatest(limit_ - used_now, 0) WHEN is_elastic AND warm_now >=
                    limit_ AND limit_ - used_now > buffer THEN limit_ - used_now - buffer WHEN used_now <
                    limit_ AND last_now + spacing <= now THEN 1 ELSE 0 END
            ) > 0 THEN 0 WHEN used_now >= limit_ THEN since + span WHEN is_elastic AND warm_now >= limit_ THEN
                least(last_now + spacing, since + span) ELSE last_now + spacing END
        ) AS opens, now
    FROM spent
),
placed AS MATERIALIZED (
    SELECT *,
        CASE WHEN paused_reason <> '' THEN 1 WHEN rank IS NULL AND in_flight > 0 THEN 1 WHEN rank IS NULL OR
            opens > now THEN 2 ELSE 0 END AS place, rank IS NULL
      AND paused_reason = ''
      AND in_flight <= 0
      AND expires <= now AS is_idle
    FROM written
),
written_lanes AS (
    UPDATE djqueue_lane l
    SET rates = rates_now, turn = turn_now, state = place, sort_key = CASE place WHEN 0 THEN rank ELSE 0 END,
        sort_at = CASE WHEN place <> 2 THEN turn_now WHEN rank IS NULL THEN expires ELSE opens END
    FROM placed p
    WHERE l.seq = p.seq
      AND NOT is_idle
    RETURNING l.state, l.sort_at
), forgotten AS (DELETE FROM djqueue_lane l USING placed p WHERE l.seq = p.seq AND is_idle),
taken_in AS (
    DELETE
    FROM djqueue_ticket
    WHERE seq = ANY(ARRAY(SELECT t.seq FROM tickets t JOIN open o ON o.name = t.name))
)
SELECT EXISTS (SELECT 1 FROM calm), (SELECT now FROM moment), EXISTS (SELECT 1 FROM seen),
    EXISTS (SELECT 1 FROM written_lanes WHERE state = 0) OR (SELECT count(*) FROM seen) > (
        SELECT count(*) FROM open
    ) OR (SELECT count(*) FROM seen) >= least(1, 200) OR EXISTS (
        SELECT 1 FROM tickets t WHERE NOT EXISTS (SELECT 1 FROM open o WHERE o.name = t.name)
    ), EXISTS (SELECT 1 FROM made),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ),
    least(
        (SELECT min(sort_at) FROM written_lanes WHERE state = 2),
        (
            SELECT sort_at
            FROM djqueue_lane
            WHERE queue = %(queue)s
              AND state = 2
              AND sort_key = 0
              AND sort_at > NOW
            ORDER BY sort_at LIMIT 1
        ),
        (
            SELECT sort_at
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 3
              AND sort_key = 0
              AND sort_at >= NOW
            ORDER BY sort_at LIMIT 1
        )
    ), g.*
FROM (SELECT 1) one
LEFT JOIN (SELECT got.* FROM got JOIN picked USING (seq) ORDER BY unit) g ON true;
BEGIN;
SELECT seq, lane, lane_number, gate
FROM djqueue_message
WHERE queue = %s
  AND state = 3
  AND sort_key = 0
  AND sort_at < NOW
ORDER BY sort_at LIMIT 500
FOR UPDATE SKIP LOCKED;
UPDATE djqueue_message SET state = lane_number, sort_key = neg_priority, sort_at = due_since WHERE seq IN (%s);
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
COMMIT;
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- claim: from the failed queue

WITH due AS (
    UPDATE djqueue_message
    SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END,
        sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            ORDER BY sort_at LIMIT 500
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
      AND NOT EXISTS (SELECT 1 FROM due)
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT NULL, (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END, NULL, NULL, NULL, NULL, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;


-- claim: within a rate limit

SELECT NOW,
    (SELECT sort_key FROM djqueue_message WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key LIMIT 1),
    (
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ), (SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1),
    (SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1),
    (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ), (SELECT value FROM djqueue_fact WHERE name = %(key)s AND (until IS NULL OR until > NOW));
BEGIN;
WITH held AS MATERIALIZED (
    SELECT name, value, (until IS NULL OR until > NOW) AS lives
    FROM djqueue_fact
    WHERE name = ANY(%s)
    ORDER BY name
    FOR UPDATE
)
SELECT held.*, (extract(epoch from clock_timestamp()) * 1000000)::bigint
FROM held;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT NOW;
WITH due AS (
    UPDATE djqueue_message
    SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END,
        sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            ORDER BY sort_at LIMIT 500
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
      AND NOT EXISTS (SELECT 1 FROM due)
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = :moment + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT NULL, (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
COMMIT;
-- SELECT as in: claim: two are ready


-- claim: within a rate limit, nothing is there

-- SELECT as in: claim: within a rate limit


-- exchange

WITH d AS (
    DELETE
    FROM djqueue_message m
    WHERE m.seq = ANY(%(seqs)s::bigint[])
      AND ((m.seq, m.token) IN (SELECT * FROM unnest(%(seqs)s::bigint[], %(tokens)s::bigint[]))) IS TRUE
    RETURNING m.seq
),
c AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %(counter)s, '', NULL, count(*)
    FROM d
    HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter
),
due AS (
    UPDATE djqueue_message
    SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END,
        sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            ORDER BY sort_at LIMIT 500
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
      AND (SELECT count(*) FROM d) >= 0
      AND NOT EXISTS (SELECT 1 FROM due)
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 0 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT CASE WHEN (SELECT count(*) FROM d) < %(number)s THEN ARRAY(SELECT seq FROM d) END,
    (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;


-- exchange: two more are ready

-- WITH as in: exchange
-- SELECT as in: claim: two are ready


-- exchange: one is delayed and due

-- WITH as in: exchange
WITH due AS (
    UPDATE djqueue_message
    SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END,
        sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            ORDER BY sort_at LIMIT 500
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
      AND NOT EXISTS (SELECT 1 FROM due)
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 0 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT NULL, (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;


-- begin

UPDATE djqueue_message m
SET begun = 1
WHERE m.seq = ANY(%s::bigint[])
  AND ((m.seq, m.token) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))) IS TRUE
  AND state IN (2, 4)
  AND sort_at > NOW
RETURNING m.seq;


-- touch

UPDATE djqueue_message m
SET lost = CASE WHEN state NOT IN (2, 4) AND begun <> 0 AND lost > 0 THEN lost - 1 ELSE lost END,
    state = CASE WHEN state = 4 THEN 4 ELSE 2 END, sort_key = 0, sort_at = NOW + %s
WHERE m.seq = ANY(%s::bigint[])
  AND ((m.seq, m.token) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))) IS TRUE
RETURNING m.seq, m.sort_at;


-- complete

WITH d AS (
    DELETE
    FROM djqueue_message m
    WHERE m.seq = ANY(%s::bigint[])
      AND ((m.seq, m.token) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))) IS TRUE
    RETURNING m.seq, m.id
),
c AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %s, '', NULL, count(*)
    FROM d
    HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter
),
r AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %s::text || id, '', NOW + %s, seq
    FROM d
    WHERE %s
    ORDER BY id
    ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter
)
SELECT seq
FROM d;


-- complete: and keep facts

WITH d AS (
    DELETE
    FROM djqueue_message m
    WHERE m.seq = ANY(%s::bigint[])
      AND ((m.seq, m.token) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))) IS TRUE
    RETURNING m.seq, m.id
),
c AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %s, '', NULL, count(*)
    FROM d
    HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter
),
r AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %s::text || id, '', NOW + %s, seq
    FROM d
    WHERE %s
    ORDER BY id
    ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter
),
f AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT DISTINCT ON (name COLLATE "C") name, value, NOW + ttl, 0
    FROM (
        VALUES (
            CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS bigint)
        ), (CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS bigint))
    ) x (seq, token, name, value, ttl)
    WHERE seq IN (SELECT seq FROM d)
    ORDER BY name COLLATE "C"
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
)
SELECT seq
FROM d;


-- complete: in a lane

BEGIN;
SELECT l.seq, l.name, l.number, l.gate, l.in_flight, l.turn, l.not_before, l.paused_reason, l.rates, l.state,
    l.sort_key, l.sort_at
FROM djqueue_lane l
WHERE name IN (%s)
  AND queue = %s
ORDER BY name
FOR UPDATE;
-- WITH as in: complete
-- SELECT as in: claim: from a lane, to which something came
UPDATE djqueue_lane l
SET gate = u.gate, in_flight = u.in_flight, turn = u.turn, not_before = u.not_before,
    paused_reason = u.paused_reason, rates = u.rates, state = u.state, sort_key = u.sort_key,
    sort_at = u.sort_at
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS int), CAST(%s AS bigint), CAST(%s AS bigint),
        CAST(%s AS text), CAST(%s AS text), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS bigint)
    )
) u (seq, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at)
WHERE l.seq = u.seq
RETURNING l.seq,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %s)::text END
    );
COMMIT;


-- release

UPDATE djqueue_message m
SET queue = %s,
    state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN 1
        ELSE 0 END,
    sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END
        END, sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, token = 0, owner = '',
    attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    ),
    (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    )
) u (seq, token, delay, attempts, failures, lost, errors)
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING m.seq,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %s)::text END
    );


-- release: with a delay

UPDATE djqueue_message m
SET queue = %s,
    state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN 1
        ELSE 0 END,
    sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END
        END, sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, token = 0, owner = '',
    attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    ),
    (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    )
) u (seq, token, delay, attempts, failures, lost, errors)
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING m.seq;


-- release: in a lane

BEGIN;
-- SELECT as in: complete: in a lane
UPDATE djqueue_message m
SET queue = %s,
    state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN 1
        ELSE 0 END,
    sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END
        END, sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, token = 0, owner = '',
    attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    )
) u (seq, token, delay, attempts, failures, lost, errors)
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING m.seq,
    (
        SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(
            1684698469, :bucket
        )::text ELSE pg_notify(':channel', %s)::text END
    );
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: complete: in a lane
COMMIT;


-- fail

UPDATE djqueue_message m
SET queue = %s, state = 0, sort_key = 0, sort_at = NOW + u.delay, due_since = NOW + u.delay, token = 0,
    owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    ),
    (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    )
) u (seq, token, delay, attempts, failures, lost, errors)
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING m.seq;


-- fail: and keep facts

WITH d AS (
    UPDATE djqueue_message m
    SET queue = %s, state = 0, sort_key = 0, sort_at = NOW + u.delay, due_since = NOW + u.delay, token = 0,
        owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
    FROM (
        VALUES (
            CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text)
        ),
        (
            CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text)
        )
    ) u (seq, token, delay, attempts, failures, lost, errors)
    WHERE m.seq = u.seq
      AND m.token = u.token
    RETURNING m.seq
),
f AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT DISTINCT ON (name COLLATE "C") name, value, NOW + ttl, 0
    FROM (
        VALUES (
            CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS bigint)
        ), (CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS text), CAST(%s AS bytea), CAST(%s AS bigint))
    ) x (seq, token, name, value, ttl)
    WHERE seq IN (SELECT seq FROM d)
    ORDER BY name COLLATE "C"
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
)
SELECT seq
FROM d;


-- fail: in a lane

BEGIN;
-- SELECT as in: complete: in a lane
UPDATE djqueue_message m
SET queue = %s, state = 0, sort_key = 0, sort_at = NOW + u.delay, due_since = NOW + u.delay, token = 0,
    owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM (
    VALUES (
        CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
        CAST(%s AS int), CAST(%s AS text)
    )
) u (seq, token, delay, attempts, failures, lost, errors)
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING m.seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: complete: in a lane
COMMIT;


-- fail: the failed queue has one of the same id

-- UPDATE as in: fail: in a lane
BEGIN;
SELECT seq, token, id FROM djqueue_message WHERE seq IN (%s);
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s) AND true;
-- UPDATE as in: fail: in a lane
COMMIT;


-- defer: in a lane

BEGIN;
-- SELECT as in: complete: in a lane
-- SELECT as in: claim: from a lane, to which something came
COMMIT;


-- reap: nothing has expired

WITH gone AS (
    UPDATE djqueue_message
    SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = 0,
        sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 2
              AND sort_key = 0
              AND sort_at < NOW
              AND NOW <= %(by)s
            ORDER BY sort_at LIMIT %(limit)s
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone), NOW,
    (
        SELECT min(sort_at)
        FROM (
            SELECT *
            FROM (
                SELECT sort_at
                FROM djqueue_message
                WHERE queue = %(queue)s
                  AND state = 2
                  AND sort_key = 0
                  AND sort_at >= NOW
                ORDER BY sort_at LIMIT 1
            ) x
            UNION ALL
            SELECT *
            FROM (
                SELECT sort_at
                FROM djqueue_message
                WHERE queue = %(queue)s
                  AND state = 4
                  AND sort_key = 0
                  AND sort_at >= NOW
                ORDER BY sort_at LIMIT 1
            ) x
        ) y
    ),
    (
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 4
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ) IS NOT NULL;


-- reap

-- WITH as in: reap: nothing has expired
SELECT (
    SELECT CASE WHEN pg_try_advisory_lock(1684698469, :bucket) THEN pg_advisory_unlock(1684698469, :bucket)::text
        ELSE pg_notify(':channel', %s)::text END
);


-- reap: in a lane

-- WITH as in: reap: nothing has expired
SELECT seq, lane, gate
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 4
  AND sort_key = 0
  AND sort_at < NOW
ORDER BY sort_at LIMIT %(limit)s;
BEGIN;
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
-- SELECT as in: claim: from a lane, to which something came
SELECT m.seq, lane
FROM djqueue_message m
WHERE m.seq IN (%s)
  AND state = 4
  AND sort_at < NOW
  AND NOW <= %s
FOR UPDATE;
UPDATE djqueue_message
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = lane_number,
    sort_key = neg_priority, sort_at = due_since, token = 0, owner = ''
WHERE seq IN (%s);
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: complete: in a lane
COMMIT;


-- reclaim

UPDATE djqueue_message
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = 0,
    sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since
WHERE seq = ANY(
    ARRAY(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
          AND owner = %(owner)s
        ORDER BY sort_at LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
);
-- SELECT as in: reap
SELECT seq, lane, gate
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 4
  AND sort_key = 0
  AND owner = %(owner)s
ORDER BY sort_at LIMIT %(limit)s;


-- reclaim: in a lane

-- UPDATE as in: reclaim
-- SELECT as in: reclaim
BEGIN;
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
-- SELECT as in: complete: in a lane
SELECT m.seq, lane FROM djqueue_message m WHERE m.seq IN (%s) AND state = 4 AND owner = %s FOR UPDATE;
-- UPDATE as in: reap: in a lane
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: complete: in a lane
COMMIT;


-- sweep

SELECT name FROM djqueue_lane WHERE queue = %s AND in_flight > 0 AND name > %s ORDER BY name LIMIT %s;
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT m.lane, l.gate, count(*)
FROM djqueue_message m
LEFT JOIN djqueue_lane l ON l.queue = m.queue
  AND l.name = m.lane
WHERE m.queue = %s
  AND m.state = 4
GROUP BY m.lane, l.gate;
-- SELECT as in: claim: from a lane, to which something came
COMMIT;
SELECT m.state, m.lane, m.gate, l.seq
FROM (
    SELECT state, lane, gate
    FROM djqueue_message
    WHERE queue = %s
      AND state > %s
      AND state > 4
      AND gate <> ''
    ORDER BY state LIMIT %s
) m
LEFT JOIN djqueue_lane l ON l.queue = %s
  AND l.name = m.lane;
-- SELECT as in: claim: from a lane, to which something came


-- find

SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW
FROM djqueue_message
WHERE queue = %s
  AND id = %s;


-- peek: ready

UPDATE djqueue_message
SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since
WHERE seq = ANY(
    ARRAY(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
);
-- SELECT as in: claim: two are ready
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;


-- peek: ready, behind a cursor

-- UPDATE as in: peek: ready
-- SELECT as in: claim: two are ready
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
  AND (sort_key, sort_at, seq) > (%(sort_key)s, %(sort_at)s, %(seq)s)
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;


-- peek: ready, in lanes

-- UPDATE as in: peek: ready
-- SELECT as in: claim: two are ready
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: two are ready
-- SELECT as in: peek: ready
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = :lane
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;


-- newest

SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT %(limit)s;


-- peek_lane

-- UPDATE as in: peek: ready
-- SELECT as in: claim: two are ready
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: two are ready
-- SELECT as in: peek: ready, in lanes


-- peek: delayed

-- UPDATE as in: peek: ready
-- SELECT as in: claim: two are ready
SELECT *
FROM (
    SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
        sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 1
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
) x
UNION ALL
SELECT *
FROM (
    SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
        sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 3
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
) x;


-- stats

SELECT (
    SELECT count(*) FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = 0 LIMIT 100000) x
), laned.many,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 3
              AND sort_key = 0
              AND sort_at < NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at >= NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 3
              AND sort_key = 0
              AND sort_at >= NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = 2 LIMIT 100000) x
    ),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = 4 LIMIT 100000) x
    ),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(failed)s AND state = 0 LIMIT 100000) x
    ),
    (
        SELECT sum(counter)
        FROM djqueue_fact
        WHERE name IN (
            %(k0)s, %(k1)s, %(k2)s, %(k3)s, %(k4)s, %(k5)s, %(k6)s, %(k7)s, %(k8)s, %(k9)s, %(k10)s, %(k11)s,
            %(k12)s, %(k13)s, %(k14)s, %(k15)s
        )
    ), NOW,
    (
        SELECT min(sort_at)
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
    ),
    (
        SELECT min(sort_at)
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
          AND sort_at < NOW
    ),
    (
        WITH RECURSIVE p (sort_key, n) AS (
            SELECT (
                SELECT r.sort_key
                FROM djqueue_message r
                WHERE r.queue = %(queue)s
                  AND r.state = 0
                ORDER BY r.sort_key LIMIT 1
            ), 1
            UNION ALL
            SELECT (
                SELECT r.sort_key
                FROM djqueue_message r
                WHERE r.queue = %(queue)s
                  AND r.state = 0
                  AND r.sort_key > p.sort_key
                ORDER BY r.sort_key LIMIT 1
            ), n + 1
            FROM p
            WHERE p.sort_key IS NOT NULL
              AND n < 64
        )
        SELECT min(
            (
                SELECT r.sort_at
                FROM djqueue_message r
                WHERE r.queue = %(queue)s
                  AND r.state = 0
                  AND r.sort_key = p.sort_key
                ORDER BY r.sort_at LIMIT 1
            )
        )
        FROM p
    ), laned.oldest
FROM (
    SELECT count(*) AS many, min(sort_at) AS oldest
    FROM (
        SELECT m.sort_at
        FROM (
            SELECT number
            FROM djqueue_lane
            WHERE queue = %(queue)s
            UNION
            SELECT number
            FROM djqueue_ticket
            WHERE queue = %(queue)s
        ) l
        CROSS JOIN LATERAL (
            SELECT sort_at
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = l.number
            ORDER BY sort_key, sort_at, seq OFFSET 0
        ) m
        LIMIT 100000
    ) x
) laned;


-- length

SELECT (SELECT count(*) FROM djqueue_message WHERE queue = %(queue)s AND state IN (0, 1, 3)) + (
    SELECT count(*)
    FROM (
        SELECT number
        FROM djqueue_lane
        WHERE queue = %(queue)s
        UNION
        SELECT number
        FROM djqueue_ticket
        WHERE queue = %(queue)s
    ) l
    CROSS JOIN LATERAL (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = l.number
        ORDER BY sort_key, sort_at, seq OFFSET 0
    ) m
);


-- remove

BEGIN;
SELECT DISTINCT lane, ABS(lane_number), gate
FROM djqueue_message
WHERE queue = %s
  AND id IN (%s, %s)
  AND lane_number <> 0;
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s, %s) AND state NOT IN (2, 4);
COMMIT;


-- cancel

BEGIN;
SELECT DISTINCT lane, ABS(lane_number), gate
FROM djqueue_message
WHERE queue = %s
  AND id IN (%s)
  AND lane_number <> 0;
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s) AND state NOT IN (2, 4);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
COMMIT;


-- remove: from a lane

BEGIN;
-- SELECT as in: remove
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s, %s) AND state NOT IN (2, 4);
COMMIT;


-- remove: from the failed queue

DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s, %s) AND state NOT IN (2, 4);


-- reprioritise

BEGIN;
-- SELECT as in: remove
UPDATE djqueue_message
SET neg_priority = CASE WHEN lane_number = 0 THEN %s ELSE %s END,
    sort_key = CASE WHEN state IN (1, 3) OR queue LIKE '%:failed' THEN 0 ELSE CASE WHEN lane_number = 0 THEN
        %s ELSE %s END END
WHERE queue = %s
  AND id IN (%s, %s)
  AND state NOT IN (2, 4);
COMMIT;


-- promote

BEGIN;
-- SELECT as in: cancel
UPDATE djqueue_message
SET sort_at = CASE WHEN due_since > NOW THEN NOW ELSE due_since END,
    due_since = CASE WHEN due_since > NOW THEN NOW ELSE due_since END,
    sort_key = CASE WHEN state = 3 THEN neg_priority ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE
        neg_priority END END, state = CASE WHEN state = 3 THEN lane_number ELSE 0 END
WHERE queue = %s
  AND id IN (%s)
  AND state IN (1, 3);
-- SELECT as in: reap
COMMIT;


-- amend

UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND state NOT IN (2, 4) AND body = %s;


-- requeue

BEGIN;
-- SELECT as in: remove
UPDATE djqueue_message AS m
SET queue = %s, lane_number = ABS(lane_number), state = ABS(lane_number), sort_key = neg_priority,
    sort_at = NOW, due_since = NOW, created = NOW, token = 0, owner = '', attempts = 0, failures = 0, lost = 0
WHERE queue = %s
  AND id IN (%s, %s)
  AND state NOT IN (2, 4)
  AND (SELECT o.seq FROM djqueue_message o WHERE o.queue = %s AND o.id = m.id) IS NULL;
-- SELECT as in: reap
COMMIT;


-- trim: nothing

SELECT sort_key
FROM (
    SELECT sort_key, sort_at
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT 1
) f
WHERE sort_at < NOW - %s;
SELECT sort_key, sort_at, seq
FROM djqueue_message
WHERE queue = %s
  AND state = 0
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1 OFFSET %s;


-- trim: by count

-- SELECT as in: trim: nothing
DELETE
FROM djqueue_message
WHERE seq = ANY(
    ARRAY(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %s
          AND state = 0
          AND (sort_key, sort_at, seq) <= (0, :moment, :seq)
        ORDER BY sort_key, sort_at, seq LIMIT %s
        FOR UPDATE SKIP LOCKED
    )
);


-- trim: by age

-- SELECT as in: trim: nothing
DELETE
FROM djqueue_message
WHERE seq = ANY(
    ARRAY(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %s
          AND state = 0
          AND sort_key = %s
          AND sort_at < NOW - %s
        ORDER BY sort_key, sort_at, seq LIMIT %s
        FOR UPDATE SKIP LOCKED
    )
);


-- flush

WITH gone AS (
    DELETE
    FROM djqueue_message
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = %(state)s
              AND sort_key BETWEEN -2147483648
              AND 2147483648
              AND sort_at BETWEEN -:lane
              AND :lane
            ORDER BY sort_key, sort_at, seq LIMIT 5000
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING sort_key, sort_at, seq
)
SELECT sort_key, sort_at, seq
FROM gone
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1;
WITH gone AS (
    DELETE
    FROM djqueue_message
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = %(state)s
              AND sort_key BETWEEN -2147483648
              AND 2147483648
              AND sort_at BETWEEN -:lane
              AND :lane
            ORDER BY sort_key, sort_at, seq LIMIT 5000
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING sort_key, sort_at, seq
)
SELECT sort_key, sort_at, seq
FROM gone
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1;
WITH gone AS (
    DELETE
    FROM djqueue_message
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = %(state)s
              AND sort_key BETWEEN -2147483648
              AND 2147483648
              AND sort_at BETWEEN -:lane
              AND :lane
            ORDER BY sort_key, sort_at, seq LIMIT 5000
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING sort_key, sort_at, seq
)
SELECT sort_key, sort_at, seq
FROM gone
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;
SELECT created, seq, name
FROM djqueue_ticket
WHERE queue = %s
  AND created >= %s
  AND (created > %s OR seq > %s)
ORDER BY created, seq LIMIT %s;
WITH gone AS (
    DELETE
    FROM djqueue_message
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = ANY(%(numbers)s::bigint[])
              AND sort_key BETWEEN -2147483648
              AND 2147483648
              AND sort_at BETWEEN -:lane
              AND :lane
            ORDER BY state, sort_key, sort_at, seq LIMIT 5000
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING state
)
SELECT state
FROM gone
ORDER BY state DESC LIMIT 1;
WITH gone AS (
    DELETE
    FROM djqueue_message
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = ANY(%(numbers)s::bigint[])
              AND sort_key BETWEEN -2147483648
              AND 2147483648
              AND sort_at BETWEEN -:lane
              AND :lane
            ORDER BY state, sort_key, sort_at, seq LIMIT 5000
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING state
)
SELECT state
FROM gone
ORDER BY state DESC LIMIT 1;
SELECT created, seq, name
FROM djqueue_ticket
WHERE queue = %s
  AND created >= %s
  AND (created > %s OR seq > %s)
ORDER BY created, seq LIMIT %s;
INSERT INTO djqueue_ticket (queue, created, name, number, gate)
SELECT queue, NOW, name, number, ''
FROM djqueue_lane
WHERE queue = %s
  AND (state = 0 OR state >= 16);


-- lanes

-- SELECT as in: claim: two are ready
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: two are ready
SELECT seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
FROM djqueue_lane
WHERE queue = %s
  AND name > %s
ORDER BY name LIMIT %s;
SELECT l.number,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %s
              AND state = l.number
            ORDER BY sort_key, sort_at, seq LIMIT 10000
        ) x
    )
FROM unnest(%s::bigint[]) l (number);
SELECT lane, gate, count(*) FROM djqueue_message WHERE queue = %s AND state = 4 GROUP BY lane, gate;


-- lane

-- SELECT as in: claim: two are ready
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: two are ready
SELECT seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
FROM djqueue_lane
WHERE queue = %s
  AND name = %s;
-- SELECT as in: lanes
SELECT lane, gate, count(*) FROM djqueue_message WHERE queue = %s AND state = 4 GROUP BY lane, gate;


-- pause_lane

-- SELECT as in: claim: two are ready
BEGIN;
-- SELECT as in: complete: in a lane
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- resume_lane

BEGIN;
-- SELECT as in: complete: in a lane
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- history: complete

WITH d AS (
    DELETE
    FROM djqueue_message m
    WHERE m.seq = ANY(%s::bigint[])
      AND ((m.seq, m.token) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))) IS TRUE
    RETURNING m.seq, m.id
),
c AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %s, '', NULL, count(*)
    FROM d
    HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter
),
r AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %s::text || id, '', NOW + %s, seq
    FROM d
    WHERE %s
    ORDER BY id
    ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter
),
h AS (
    INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records)
    SELECT %s, NOW, %s, %s, %s, records
    FROM (
        SELECT CASE WHEN (SELECT count(*) FROM d) = %s THEN whole ELSE (
            SELECT string_agg(chr(10) || line, '')
            FROM unnest(string_to_array(substr(whole, 2), chr(10)), %s::bigint[]) x (line, seq)
            WHERE seq IN (SELECT seq FROM d)
        ) END AS records
        FROM (SELECT %s::text AS whole) r OFFSET 0
    ) k
    WHERE records IS NOT NULL
)
SELECT seq
FROM d;


-- history: complete what is not all held

-- WITH as in: history: complete


-- history: exchange

WITH d AS (
    DELETE
    FROM djqueue_message m
    WHERE m.seq = ANY(%(seqs)s::bigint[])
      AND ((m.seq, m.token) IN (SELECT * FROM unnest(%(seqs)s::bigint[], %(tokens)s::bigint[]))) IS TRUE
    RETURNING m.seq
),
c AS (
    INSERT INTO djqueue_fact (name, value, until, counter)
    SELECT %(counter)s, '', NULL, count(*)
    FROM d
    HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter
),
h AS (
    INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records)
    SELECT %(queue)s, NOW, %(count)s, %(first_id)s, %(last_id)s, records
    FROM (
        SELECT CASE WHEN (SELECT count(*) FROM d) = %(number)s THEN whole ELSE (
            SELECT string_agg(chr(10) || line, '')
            FROM unnest(string_to_array(substr(whole, 2), chr(10)), %(recorded)s::bigint[]) x (line, seq)
            WHERE seq IN (SELECT seq FROM d)
        ) END AS records
        FROM (SELECT %(records)s::text AS whole) r OFFSET 0
    ) k
    WHERE records IS NOT NULL
),
due AS (
    UPDATE djqueue_message
    SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END,
        sort_at = due_since
    WHERE seq = ANY(
        ARRAY(
            SELECT seq
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            ORDER BY sort_at LIMIT 500
            FOR UPDATE SKIP LOCKED
        )
    )
    RETURNING 1
),
pick AS MATERIALIZED (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
      AND sort_key BETWEEN -2147483648
      AND 2147483648
      AND sort_at BETWEEN -:lane
      AND :lane
      AND (SELECT count(*) FROM d) >= 0
      AND NOT EXISTS (SELECT 1 FROM due)
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
got AS (
    UPDATE djqueue_message
    SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
        attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
        begun = CASE WHEN 1 = 0 AND lost = 0 THEN 1 ELSE 0 END
    WHERE seq = ANY(ARRAY(SELECT seq FROM pick))
    RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command,
        errors, sort_at, gate, lane_number
)
SELECT CASE WHEN (SELECT count(*) FROM d) < %(number)s THEN ARRAY(SELECT seq FROM d) END,
    (SELECT count(*) FROM due), NOW,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END,
    CASE WHEN (SELECT count(*) FROM got) < %(limit)s THEN (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ) END, got.*
FROM (SELECT 1) one
LEFT JOIN got ON true;


-- history: fail

WITH d AS (
    UPDATE djqueue_message m
    SET queue = %s, state = 0, sort_key = 0, sort_at = NOW + u.delay, due_since = NOW + u.delay, token = 0,
        owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
    FROM (
        VALUES (
            CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text)
        ),
        (
            CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS bigint), CAST(%s AS int), CAST(%s AS int),
            CAST(%s AS int), CAST(%s AS text)
        )
    ) u (seq, token, delay, attempts, failures, lost, errors)
    WHERE m.seq = u.seq
      AND m.token = u.token
    RETURNING m.seq
),
h AS (
    INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records)
    SELECT %s, NOW, %s, %s, %s, records
    FROM (
        SELECT CASE WHEN (SELECT count(*) FROM d) = %s THEN whole ELSE (
            SELECT string_agg(chr(10) || line, '')
            FROM unnest(string_to_array(substr(whole, 2), chr(10)), %s::bigint[]) x (line, seq)
            WHERE seq IN (SELECT seq FROM d)
        ) END AS records
        FROM (SELECT %s::text AS whole) r OFFSET 0
    ) k
    WHERE records IS NOT NULL
)
SELECT seq
FROM d;


-- history: remember

INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);


-- history: history_of

SELECT records
FROM djqueue_history
WHERE queue = %s
  AND first_id <= %s
  AND last_id >= %s
  AND position(%s IN records) > 0
ORDER BY seq DESC LIMIT 1;


-- history: history

SELECT h.seq, h.records
FROM (
    SELECT seq, sum(count) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - count AS newer
    FROM (SELECT seq, count FROM djqueue_history WHERE queue = %s AND seq <= %s ORDER BY seq DESC LIMIT %s) s
) n JOIN djqueue_history h ON h.seq = n.seq
WHERE n.newer < %s
ORDER BY h.seq DESC;


-- history: history, a later page

-- SELECT as in: history: history
SELECT seq, records
FROM djqueue_history
WHERE queue = %s
  AND seq > %s
  AND first_id <= %s
  AND last_id >= %s
ORDER BY seq LIMIT %s;


-- history: trim_history

SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE at < NOW - %s;
SELECT COALESCE(max(seq), 0) FROM djqueue_history WHERE queue = %s;
SELECT h.seq, n.newer, h.records
FROM (
    SELECT seq, count AS here, sum(count) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - count AS newer
    FROM djqueue_history
    WHERE queue = %s
) n JOIN djqueue_history h ON h.seq = n.seq
WHERE n.newer + n.here > %s
ORDER BY h.seq DESC LIMIT 1;
UPDATE djqueue_history SET count = %s, records = %s WHERE seq = %s;
SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE seq < %s;


-- history: trim_history, nothing

SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE at < NOW - %s;
SELECT COALESCE(max(seq), 0) FROM djqueue_history WHERE queue = %s;
-- SELECT as in: history: trim_history
SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE seq < %s;


-- facts: now

SELECT NOW;


-- facts: get

SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);


-- facts: get_many

SELECT name, value FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);


-- facts: put

INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;


-- facts: put_many

INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;


-- facts: add

INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
WHERE djqueue_fact.until <= NOW;


-- facts: swap

UPDATE djqueue_fact
SET value = %s, until = NOW + %s
WHERE name = %s
  AND value = %s
  AND (until IS NULL OR until > NOW);


-- facts: swap_many

BEGIN;
-- INSERT as in: put: unique
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
COMMIT;


-- facts: drop

DELETE FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);


-- facts: drop, if it has this value

DELETE FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW) AND value = %s;


-- facts: acquire of a rate limit

BEGIN;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);
SELECT NOW;
-- INSERT as in: facts: add
COMMIT;


-- facts: give back

BEGIN;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);
-- UPDATE as in: facts: swap
COMMIT;


-- facts: prune

DELETE
FROM djqueue_fact
WHERE name = ANY(
    ARRAY(SELECT name FROM djqueue_fact WHERE until <= NOW ORDER BY until LIMIT %s FOR UPDATE SKIP LOCKED)
);


-- put: with REMEMBER_DONE

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
-- WITH as in: put: two entries
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
COMMIT;


-- put: with REMEMBER_DONE, once in 60 seconds

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
-- INSERT as in: facts: add
-- INSERT as in: facts: add
-- WITH as in: put: two entries
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
COMMIT;


-- claim: with REMEMBER_DONE

-- WITH as in: claim: nothing is there
-- SELECT as in: claim: two are ready
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);


-- complete: with REMEMBER_DONE

-- WITH as in: complete


-- facts: prune, with KEEP_DONE

-- DELETE as in: facts: prune
SELECT until, counter
FROM djqueue_fact
WHERE name >= %s
  AND name < %s
ORDER BY until DESC, counter DESC LIMIT 1 OFFSET %s;
