-- mariadb
-- NOW is TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))


-- put: one entry

INSERT IGNORE INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
)
RETURNING id;


-- put: two entries

SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
INSERT IGNORE INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
)
RETURNING id;


-- put: eight entries

SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s, %s, %s, %s, %s, %s, %s);
INSERT IGNORE INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 1, 0),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
)
RETURNING id;


-- put: in a lane

BEGIN;
INSERT IGNORE INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, :lane, 0, '', NOW, NOW + 0, IF(NOW + 0 > NOW, 3, :lane),
    IF(NOW + 0 > NOW, 0, -1), NOW + 0
)
RETURNING id;
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
COMMIT;


-- put: once in 60 seconds

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name;
UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND until <= NOW;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name;
UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND until <= NOW;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
-- INSERT as in: put: two entries
COMMIT;


-- put: unique

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name
RETURNING name, value, COALESCE(until > NOW, true);
SELECT NOW, m.id, m.state
FROM (SELECT 1 AS one) x
LEFT JOIN djqueue_message m ON m.queue = %s
  AND m.id IN (%s, %s);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
INSERT IGNORE INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, :moment, IF(:moment > NOW, 1, 0),
    IF(:moment > NOW, 0, -1), :moment
),
(
    %s, %s, %s, -1, %s, %s, %s, 0, 0, 0, %s, 0, 0, '', NOW, :moment, IF(:moment > NOW, 1, 0),
    IF(:moment > NOW, 0, -1), :moment
)
RETURNING id;
COMMIT;


-- put: debounced

BEGIN;
-- INSERT as in: put: unique
-- SELECT as in: put: unique
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
-- INSERT as in: put: unique
COMMIT;


-- put: debounced, one waits and is postponed

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name
RETURNING name, value, COALESCE(until > NOW, true);
-- SELECT as in: put: unique
SELECT id
FROM djqueue_message FORCE INDEX (djqueue_message_id)
WHERE queue = %s
  AND id IN (%s)
  AND state NOT IN (2, 4)
FOR UPDATE SKIP LOCKED;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
UPDATE djqueue_message SET sort_at = %s, due_since = %s WHERE queue = %s AND id = %s AND state IN (1, 3);
COMMIT;


-- claim: nothing is there

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


-- claim: two are ready

-- SELECT as in: claim: nothing is there
BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SET @djqueue = NOW + %s;
UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET state = %s, sort_key = 0, sort_at = @djqueue, token = %s, owner = %s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END;
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number
FROM djqueue_message
WHERE queue = %s
  AND state = %s
  AND sort_key = 0
  AND sort_at = @djqueue
  AND token = %s;
COMMIT;
END;
-- SELECT as in: claim: nothing is there


-- claim: more are asked for than are ready

-- SELECT as in: claim: nothing is there
-- BEGIN as in: claim: two are ready


-- claim: one is delayed and due

-- SELECT as in: claim: nothing is there
UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 1
      AND sort_key = 0
      AND sort_at < NOW
    ORDER BY sort_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since;
-- BEGIN as in: claim: two are ready
-- SELECT as in: claim: nothing is there


-- claim: from a lane, to which something came

-- SELECT as in: claim: nothing is there
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
ON DUPLICATE KEY UPDATE seq = djqueue_lane.seq;
BEGIN;
SELECT l.seq, l.name, l.number, l.gate, l.in_flight, l.turn, l.not_before, l.paused_reason, l.rates, l.state,
    l.sort_key, l.sort_at
FROM (SELECT %s COLLATE utf8mb4_nopad_bin AS name) u
STRAIGHT_JOIN djqueue_lane l FORCE INDEX (djqueue_lane_name) ON l.name = u.name
  AND l.queue = %s
ORDER BY l.name
FOR UPDATE SKIP LOCKED;
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
DELETE m
FROM (SELECT %s AS seq) u
STRAIGHT_JOIN djqueue_ticket m FORCE INDEX (PRIMARY) ON m.seq = u.seq
WHERE true;
SELECT 0, 0, NOW, 0, 0
UNION ALL
SELECT *
FROM (
    SELECT state, seq, sort_key, sort_at, lost
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
) x
UNION ALL
SELECT *
FROM (
    SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
    FROM djqueue_lane
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at LIMIT 1
) x;
SET @djqueue = :moment + %s;
UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE djqueue_message.seq IN (:seqs)
      AND state >= 16
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET state = %s, sort_key = 0, sort_at = @djqueue, token = %s, owner = %s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN djqueue_message.seq IN (:seqs) AND lost = 0 THEN 1 ELSE 0 END;
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number
FROM djqueue_message
WHERE queue = %s
  AND state = %s
  AND sort_key = 0
  AND sort_at = @djqueue
  AND token = %s;
UPDATE (
    SELECT %s AS seq, %s AS gate, %s AS in_flight, %s AS turn, %s AS not_before, %s AS paused_reason,
        %s AS rates, %s AS state, %s AS sort_key, %s AS sort_at
) u
STRAIGHT_JOIN djqueue_lane l FORCE INDEX (PRIMARY) ON l.seq = u.seq
SET l.gate = u.gate, l.in_flight = u.in_flight, l.turn = u.turn, l.not_before = u.not_before,
    l.paused_reason = u.paused_reason, l.rates = u.rates, l.state = u.state, l.sort_key = u.sort_key,
    l.sort_at = u.sort_at;
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: from a lane with a limit and a window

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SET @djqueue = :moment + %s;
-- UPDATE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- claim: from a lane within another

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s, %s);
SELECT NOW;
INSERT INTO djqueue_lane (
    queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
)
VALUES (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0), (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0)
ON DUPLICATE KEY UPDATE seq = djqueue_lane.seq;
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
SELECT 0, 0, NOW, 0, 0
UNION ALL
SELECT *
FROM (
    SELECT state, seq, sort_key, sort_at, lost
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
) x
UNION ALL
SELECT *
FROM (
    SELECT state, seq, sort_key, sort_at, lost
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
) x
UNION ALL
SELECT *
FROM (
    SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
    FROM djqueue_lane
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at LIMIT 1
) x;
SET @djqueue = :moment + %s;
-- UPDATE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
SELECT 0, 0, NOW, 0, 0
UNION ALL
SELECT *
FROM (
    SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
    FROM djqueue_lane
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at LIMIT 1
) x;
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: from lanes and in no lane

-- SELECT as in: claim: nothing is there
-- BEGIN as in: claim: two are ready
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SELECT sort_key FROM djqueue_message WHERE queue = %s AND state = 0 ORDER BY sort_key, sort_at, seq LIMIT %s;
SET @djqueue = :moment + %s;
-- UPDATE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: delayed and due in a lane

-- SELECT as in: claim: nothing is there
BEGIN;
SELECT seq, lane, lane_number, gate
FROM djqueue_message
WHERE queue = %s
  AND state = 3
  AND sort_key = 0
  AND sort_at < NOW
ORDER BY sort_at LIMIT 500
FOR UPDATE SKIP LOCKED;
UPDATE djqueue_message FORCE INDEX (PRIMARY)
SET state = lane_number, sort_key = neg_priority, sort_at = due_since
WHERE seq IN (%s);
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
COMMIT;
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
SET @djqueue = :moment + %s;
-- UPDATE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- claim: from the failed queue

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
    ), NULL, NULL, NULL, NULL;
-- BEGIN as in: claim: two are ready


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
-- INSERT as in: put: debounced, one waits and is postponed
SELECT NOW;
-- SELECT as in: claim: nothing is there
SET @djqueue = :moment + %s;
UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET state = %s, sort_key = 0, sort_at = @djqueue, token = %s, owner = %s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END;
-- SELECT as in: claim: from a lane, to which something came
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: within a rate limit, nothing is there

-- SELECT as in: claim: within a rate limit


-- exchange

-- SELECT as in: claim: nothing is there
BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, '', NULL, COUNT(*)
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter);
DELETE m
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token;
COMMIT;
END;


-- exchange: two more are ready

-- SELECT as in: claim: nothing is there
BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, '', NULL, COUNT(*)
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter);
DELETE m
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token;
SET @djqueue = NOW + %s;
UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET state = %s, sort_key = 0, sort_at = @djqueue, token = %s, owner = %s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN 1 = 0 AND lost = 0 THEN 1 ELSE 0 END;
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number
FROM djqueue_message
WHERE queue = %s
  AND state = %s
  AND sort_key = 0
  AND sort_at = @djqueue
  AND token = %s;
COMMIT;
END;
-- SELECT as in: claim: nothing is there


-- exchange: one is delayed and due

-- SELECT as in: claim: nothing is there
-- UPDATE as in: claim: one is delayed and due
-- BEGIN as in: exchange: two more are ready


-- begin

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SET @djqueue = NOW;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
WHERE state IN (2, 4)
  AND sort_at > @djqueue
FOR UPDATE;
UPDATE (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET begun = 1
WHERE state IN (2, 4)
  AND sort_at > @djqueue;
COMMIT;
END;


-- touch

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SET @djqueue = NOW + %s;
SELECT m.seq, @djqueue
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
UPDATE (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET lost = CASE WHEN state NOT IN (2, 4) AND begun <> 0 AND lost > 0 THEN lost - 1 ELSE lost END,
    state = CASE WHEN state = 4 THEN 4 ELSE 2 END, sort_key = 0, sort_at = @djqueue;
COMMIT;
END;


-- complete

-- BEGIN as in: exchange


-- complete: and keep facts

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, %s, NOW + %s, 0
FROM djqueue_message
WHERE seq = %s
  AND token = %s
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, %s, NOW + %s, 0
FROM djqueue_message
WHERE seq = %s
  AND token = %s
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, '', NULL, COUNT(*)
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter);
DELETE m
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token;
COMMIT;
END;


-- complete: in a lane

BEGIN;
SELECT l.seq, l.name, l.number, l.gate, l.in_flight, l.turn, l.not_before, l.paused_reason, l.rates, l.state,
    l.sort_key, l.sort_at
FROM (SELECT %s COLLATE utf8mb4_nopad_bin AS name) u
STRAIGHT_JOIN djqueue_lane l FORCE INDEX (djqueue_lane_name) ON l.name = u.name
  AND l.queue = %s
ORDER BY l.name
FOR UPDATE;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, '', NULL, COUNT(*)
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter);
DELETE m
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- release

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
UPDATE (
    SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors
    UNION ALL
    SELECT %s, %s, %s, %s, %s, %s, %s
) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s,
    m.state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN
        1 ELSE 0 END,
    m.sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority
        END END, m.sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, m.token = 0,
    m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost, m.errors = u.errors;
COMMIT;
END;


-- release: with a delay

-- BEGIN as in: release


-- release: in a lane

BEGIN;
-- SELECT as in: complete: in a lane
-- SELECT as in: complete: in a lane
UPDATE (SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors)
    u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s,
    m.state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN
        1 ELSE 0 END,
    m.sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority
        END END, m.sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, m.token = 0,
    m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost, m.errors = u.errors;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- fail

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
UPDATE (
    SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors
    UNION ALL
    SELECT %s, %s, %s, %s, %s, %s, %s
) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s, m.state = 0, m.sort_key = 0, m.sort_at = NOW + u.delay, m.due_since = NOW + u.delay,
    m.token = 0, m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost,
    m.errors = u.errors;
COMMIT;
END;


-- fail: and keep facts

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, %s, NOW + %s, 0
FROM djqueue_message
WHERE seq = %s
  AND token = %s
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, %s, NOW + %s, 0
FROM djqueue_message
WHERE seq = %s
  AND token = %s
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
UPDATE (
    SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors
    UNION ALL
    SELECT %s, %s, %s, %s, %s, %s, %s
) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s, m.state = 0, m.sort_key = 0, m.sort_at = NOW + u.delay, m.due_since = NOW + u.delay,
    m.token = 0, m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost,
    m.errors = u.errors;
COMMIT;
END;


-- fail: in a lane

BEGIN;
-- SELECT as in: complete: in a lane
-- SELECT as in: complete: in a lane
UPDATE (SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors)
    u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s, m.state = 0, m.sort_key = 0, m.sort_at = NOW + u.delay, m.due_since = NOW + u.delay,
    m.token = 0, m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost,
    m.errors = u.errors;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- fail: the failed queue has one of the same id

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
UPDATE (SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors)
    u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s, m.state = 0, m.sort_key = 0, m.sort_at = NOW + u.delay, m.due_since = NOW + u.delay,
    m.token = 0, m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost,
    m.errors = u.errors;
COMMIT;
END;
BEGIN;
SELECT seq, token, id FROM djqueue_message WHERE seq IN (%s);
SELECT seq FROM djqueue_message FORCE INDEX (djqueue_message_id) WHERE queue = %s AND id IN (%s) AND true;
DELETE m
FROM (SELECT %s AS seq) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
WHERE true
  AND queue = %s
  AND true;
-- SELECT as in: complete: in a lane
-- UPDATE as in: fail: in a lane
COMMIT;


-- defer: in a lane

BEGIN;
-- SELECT as in: complete: in a lane
-- SELECT as in: claim: from a lane, to which something came
COMMIT;


-- reap: nothing has expired

SELECT NOW,
    EXISTS(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
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
    EXISTS(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 4
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    );


-- reap

-- SELECT as in: reap: nothing has expired
UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 2
      AND sort_key = 0
      AND sort_at < NOW
      AND NOW <= %(by)s
    ORDER BY sort_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = 0,
    sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since;


-- reap: in a lane

-- SELECT as in: reap: nothing has expired
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
FROM (SELECT %s AS seq) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
WHERE true
  AND state = 4
  AND sort_at < NOW
  AND NOW <= %s
FOR UPDATE;
UPDATE djqueue_message FORCE INDEX (PRIMARY)
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = lane_number,
    sort_key = neg_priority, sort_at = due_since, token = 0, owner = ''
WHERE seq IN (%s);
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;


-- reclaim

UPDATE (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 2
      AND sort_key = 0
      AND owner = %(owner)s
    ORDER BY sort_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = 0,
    sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since;
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
SELECT m.seq, lane
FROM (SELECT %s AS seq) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
WHERE true
  AND state = 4
  AND owner = %s
FOR UPDATE;
-- UPDATE as in: reap: in a lane
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
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

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;


-- peek: ready, behind a cursor

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
  AND (
      sort_key > %(sort_key)s OR (
          sort_key = %(sort_key)s AND (sort_at > %(sort_at)s OR (sort_at = %(sort_at)s AND seq > %(seq)s))
      )
  )
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;


-- peek: ready, in lanes

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
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

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
-- SELECT as in: peek: ready, in lanes


-- peek: delayed

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
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
        STRAIGHT_JOIN djqueue_message m ON m.queue = %(queue)s
          AND m.state = l.number
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
    STRAIGHT_JOIN djqueue_message m ON m.queue = %(queue)s
      AND m.state = l.number
);


-- remove

BEGIN;
SELECT DISTINCT lane, ABS(lane_number), gate
FROM djqueue_message
WHERE queue = %s
  AND id IN (%s, %s)
  AND lane_number <> 0;
SELECT seq
FROM djqueue_message FORCE INDEX (djqueue_message_id)
WHERE queue = %s
  AND id IN (%s, %s)
  AND state NOT IN (2, 4);
DELETE m
FROM (SELECT %s AS seq UNION ALL SELECT %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
WHERE true
  AND queue = %s
  AND state NOT IN (2, 4);
COMMIT;


-- cancel

BEGIN;
SELECT DISTINCT lane, ABS(lane_number), gate
FROM djqueue_message
WHERE queue = %s
  AND id IN (%s)
  AND lane_number <> 0;
SELECT seq
FROM djqueue_message FORCE INDEX (djqueue_message_id)
WHERE queue = %s
  AND id IN (%s)
  AND state NOT IN (2, 4);
DELETE m
FROM (SELECT %s AS seq) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
WHERE true
  AND queue = %s
  AND state NOT IN (2, 4);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
COMMIT;


-- remove: from a lane

BEGIN;
-- SELECT as in: remove
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
-- SELECT as in: remove
-- DELETE as in: remove
COMMIT;


-- remove: from the failed queue

-- SELECT as in: remove
-- DELETE as in: remove


-- reprioritise

BEGIN;
-- SELECT as in: remove
UPDATE djqueue_message FORCE INDEX (djqueue_message_id)
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
UPDATE djqueue_message FORCE INDEX (djqueue_message_id)
SET sort_at = CASE WHEN due_since > NOW THEN NOW ELSE due_since END,
    due_since = CASE WHEN due_since > NOW THEN NOW ELSE due_since END,
    sort_key = CASE WHEN state = 3 THEN neg_priority ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE
        neg_priority END END, state = CASE WHEN state = 3 THEN lane_number ELSE 0 END
WHERE queue = %s
  AND id IN (%s)
  AND state IN (1, 3);
COMMIT;


-- amend

UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND state NOT IN (2, 4) AND body = %s;


-- requeue

BEGIN;
-- SELECT as in: remove
UPDATE (
    SELECT d.seq
    FROM djqueue_message d
    LEFT JOIN djqueue_message o ON o.queue = %s
      AND o.id = d.id
    WHERE d.queue = %s
      AND d.id IN (%s, %s)
      AND d.state NOT IN (2, 4)
      AND o.seq IS NULL
    FOR UPDATE
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq
SET queue = %s, lane_number = ABS(lane_number), state = ABS(lane_number), sort_key = neg_priority,
    sort_at = NOW, due_since = NOW, created = NOW, token = 0, owner = '', attempts = 0, failures = 0, lost = 0;
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
DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
      AND (sort_key < 0 OR (sort_key = 0 AND (sort_at < :moment OR (sort_at = :moment AND seq <= :seq))))
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;


-- trim: by age

-- SELECT as in: trim: nothing
DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
      AND sort_key = %s
      AND sort_at < NOW - %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;


-- flush

DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;
DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;
DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;
SELECT created, seq, name
FROM djqueue_ticket
WHERE queue = %s
  AND created >= %s
  AND (created > %s OR seq > %s)
ORDER BY created, seq LIMIT %s;
DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state IN (:lane)
    ORDER BY state, sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;
DELETE djqueue_message
FROM (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state IN (:lane)
    ORDER BY state, sort_key, sort_at, seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) x
STRAIGHT_JOIN djqueue_message FORCE INDEX (PRIMARY) ON djqueue_message.seq = x.seq;
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

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
SELECT seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
FROM djqueue_lane
WHERE queue = %s
  AND name > %s
ORDER BY name LIMIT %s;
SELECT :lane AS state,
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = :lane LIMIT 10000) x
    ) AS waiting;
SELECT lane, gate, count(*) FROM djqueue_message WHERE queue = %s AND state = 4 GROUP BY lane, gate;


-- lane

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT seq FROM djqueue_ticket WHERE seq IN (%s);
-- DELETE as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
SELECT seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
FROM djqueue_lane
WHERE queue = %s
  AND name = %s;
-- SELECT as in: lanes
SELECT lane, gate, count(*) FROM djqueue_message WHERE queue = %s AND state = 4 GROUP BY lane, gate;


-- pause_lane

-- SELECT as in: claim: nothing is there
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

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
IF FOUND_ROWS() < %s THEN SIGNAL SQLSTATE '45000'
SET MESSAGE_TEXT = 'djqueue: not all are held';
END IF;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records)
VALUES (%s, NOW, %s, %s, %s, %s);
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, '', NULL, COUNT(*)
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter);
DELETE m
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token;
COMMIT;
END;


-- history: complete what is not all held

-- BEGIN as in: history: complete
BEGIN;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
-- SELECT as in: complete: in a lane
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
-- INSERT as in: complete: in a lane
-- DELETE as in: complete: in a lane
COMMIT;


-- history: exchange

-- SELECT as in: claim: nothing is there
-- BEGIN as in: history: complete


-- history: fail

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
IF FOUND_ROWS() < %s THEN SIGNAL SQLSTATE '45000'
SET MESSAGE_TEXT = 'djqueue: not all are held';
END IF;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records)
VALUES (%s, NOW, %s, %s, %s, %s);
UPDATE (
    SELECT %s AS seq, %s AS token, %s AS delay, %s AS attempts, %s AS failures, %s AS lost, %s AS errors
    UNION ALL
    SELECT %s, %s, %s, %s, %s, %s, %s
) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
SET m.queue = %s, m.state = 0, m.sort_key = 0, m.sort_at = NOW + u.delay, m.due_since = NOW + u.delay,
    m.token = 0, m.owner = '', m.attempts = u.attempts, m.failures = u.failures, m.lost = u.lost,
    m.errors = u.errors;
COMMIT;
END;


-- history: remember

INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);


-- history: history_of

SELECT records
FROM djqueue_history FORCE INDEX (djqueue_history_place)
WHERE queue = %s
  AND first_id <= %s
  AND last_id >= %s
  AND position(%s IN records) > 0
ORDER BY seq DESC LIMIT 1;


-- history: history

SELECT h.seq, h.records
FROM (
    SELECT seq, sum(count) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - count AS newer
    FROM (
        SELECT seq, count
        FROM djqueue_history FORCE INDEX (djqueue_history_place)
        WHERE queue = %s
          AND seq <= %s
        ORDER BY seq DESC LIMIT %s
    ) s
) n JOIN djqueue_history h ON h.seq = n.seq
WHERE n.newer < %s
ORDER BY h.seq DESC;


-- history: history, a later page

-- SELECT as in: history: history
SELECT seq, records
FROM djqueue_history FORCE INDEX (djqueue_history_place)
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
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);


-- facts: put_many

INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);


-- facts: add

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name;
UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND until <= NOW;
COMMIT;


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
ON DUPLICATE KEY UPDATE value = VALUES(value), until = VALUES(until);
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
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name;
UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND until <= NOW;
COMMIT;


-- facts: give back

BEGIN;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);
-- UPDATE as in: facts: swap
COMMIT;


-- facts: prune

DELETE djqueue_fact
FROM (SELECT name FROM djqueue_fact WHERE until <= NOW ORDER BY until LIMIT %s FOR UPDATE SKIP LOCKED) x
STRAIGHT_JOIN djqueue_fact FORCE INDEX (PRIMARY) ON djqueue_fact.name = x.name;


-- put: with REMEMBER_DONE

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
-- INSERT as in: put: two entries
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
COMMIT;


-- put: with REMEMBER_DONE, once in 60 seconds

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name;
UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND until <= NOW;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON DUPLICATE KEY UPDATE name = name;
UPDATE djqueue_fact SET value = %s, until = NOW + %s WHERE name = %s AND until <= NOW;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
-- INSERT as in: put: two entries
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
COMMIT;


-- claim: with REMEMBER_DONE

-- SELECT as in: claim: nothing is there
-- BEGIN as in: claim: two are ready
-- SELECT as in: claim: nothing is there
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);


-- complete: with REMEMBER_DONE

BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION
BEGIN ROLLBACK;
RESIGNAL;
END;
START TRANSACTION;
SELECT m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
FOR UPDATE;
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT CONCAT(%s, m.id), '', NOW + %s, m.seq
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
ON DUPLICATE KEY UPDATE until = VALUES(until), counter = VALUES(counter);
INSERT INTO djqueue_fact (name, value, until, counter)
SELECT %s, '', NULL, COUNT(*)
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token
HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE counter = djqueue_fact.counter + VALUES(counter);
DELETE m
FROM (SELECT %s AS seq, %s AS token UNION ALL SELECT %s, %s) u
STRAIGHT_JOIN djqueue_message m FORCE INDEX (PRIMARY) ON m.seq = u.seq
  AND m.token = u.token;
COMMIT;
END;


-- facts: prune, with KEEP_DONE

DELETE djqueue_fact
FROM (SELECT name FROM djqueue_fact WHERE until <= NOW ORDER BY until LIMIT %s FOR UPDATE SKIP LOCKED) x
STRAIGHT_JOIN djqueue_fact FORCE INDEX (PRIMARY) ON djqueue_fact.name = x.name;
SELECT until, counter
FROM djqueue_fact
WHERE name >= %s
  AND name < %s
ORDER BY until DESC, counter DESC LIMIT 1 OFFSET %s;
