-- columns
relais_adopted_change.id: bigint NOT NULL IDENTITY
relais_adopted_change.adopted_by: text COLLATE "C" NOT NULL
relais_adopted_change.adopted_key: text COLLATE "C" NOT NULL
relais_adopted_change.message_id: uuid NOT NULL
relais_adopted_change.kind: text NOT NULL
relais_adopted_change.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_attempt.id: bigint NOT NULL IDENTITY
relais_attempt.origin: text NOT NULL
relais_attempt.origin_id: bigint NOT NULL
relais_attempt.attempt: integer NOT NULL
relais_attempt.at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_attempt.outcome: text NOT NULL
relais_attempt.error_code: character varying(200)
relais_attempt.error_message: character varying(2000)
relais_attempt.worker: text NOT NULL
relais_audit.id: bigint NOT NULL IDENTITY
relais_audit.at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_audit.actor: text NOT NULL
relais_audit.action: text NOT NULL
relais_audit.target: text NOT NULL
relais_audit.reason: text NOT NULL
relais_bulk_job.id: uuid NOT NULL
relais_bulk_job.destination: text COLLATE "C" NOT NULL
relais_bulk_job.remote_id: text
relais_bulk_job.phase: text NOT NULL DEFAULT 'PLANNED'::text
relais_bulk_job.row_count: bigint NOT NULL
relais_bulk_job.owner: text COLLATE "C"
relais_bulk_job.epoch: bigint NOT NULL DEFAULT 1
relais_bulk_job.lease_until: timestamp with time zone
relais_bulk_job.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_bulk_job.finished_at: timestamp with time zone
relais_bulk_job.error_message: character varying(2000)
relais_bulk_job.moved: bigint NOT NULL IDENTITY
relais_claim.id: bigint NOT NULL
relais_claim.worker: text COLLATE "C" NOT NULL
relais_claim.fence: bigint NOT NULL IDENTITY
relais_claim.lease_until: timestamp with time zone NOT NULL
relais_control.kind: text COLLATE "C" NOT NULL
relais_control.name: text COLLATE "C" NOT NULL
relais_control.paused_at: timestamp with time zone
relais_control.paused_by: text
relais_control.paused_reason: text
relais_control.rate_calls: integer
relais_control.rate_period_ms: bigint
relais_control.concurrency: integer
relais_control.limits_changed: bigint NOT NULL DEFAULT 0
relais_control.breaker_resets: bigint NOT NULL DEFAULT 0
relais_credential.name: text COLLATE "C" NOT NULL
relais_credential.version: bigint NOT NULL DEFAULT 0
relais_credential.sealed: text
relais_credential.owner: text COLLATE "C"
relais_credential.lease_until: timestamp with time zone
relais_dead_letter.id: uuid NOT NULL DEFAULT gen_random_uuid()
relais_dead_letter.origin: text NOT NULL
relais_dead_letter.origin_id: bigint
relais_dead_letter.message_id: text COLLATE "C" NOT NULL
relais_dead_letter.source_system: text COLLATE "C"
relais_dead_letter.destination: text COLLATE "C"
relais_dead_letter.event_type: text
relais_dead_letter.msg_key: text COLLATE "C" NOT NULL
relais_dead_letter.payload: text
relais_dead_letter.headers: text DEFAULT '{}'::text
relais_dead_letter.failed_status: text NOT NULL
relais_dead_letter.error_class: character varying(200)
relais_dead_letter.error_message: character varying(2000)
relais_dead_letter.attempts: integer NOT NULL DEFAULT 0
relais_dead_letter.parked_by: text NOT NULL
relais_dead_letter.parked_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_dead_letter.parks_key: boolean NOT NULL DEFAULT false
relais_dead_letter.original_payload: text
relais_dead_letter.edited_by: text
relais_dead_letter.edited_at: timestamp with time zone
relais_dead_letter.resolution: text
relais_dead_letter.resolved_by: text
relais_dead_letter.resolved_at: timestamp with time zone
relais_dead_letter.reason: text
relais_handled.message_id: text COLLATE "C" NOT NULL
relais_handled.handler: text COLLATE "C" NOT NULL
relais_handled.processed_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_inbox.id: bigint NOT NULL IDENTITY
relais_inbox.message_id: text COLLATE "C" NOT NULL
relais_inbox.source_system: text COLLATE "C" NOT NULL
relais_inbox.topic: text NOT NULL
relais_inbox.partition_num: integer NOT NULL
relais_inbox.offset_num: bigint NOT NULL
relais_inbox.key_str: text
relais_inbox.msg_key: text COLLATE "C" NOT NULL
relais_inbox.lane: smallint NOT NULL GENERATED ((hashtext(msg_key) & 63))::smallint
relais_inbox.aggregate_id: text
relais_inbox.event_type: text
relais_inbox.payload: text
relais_inbox.headers: text NOT NULL DEFAULT '{}'::text
relais_inbox.raw_payload_base64: text
relais_inbox.event_ts: timestamp with time zone
relais_inbox.received_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_inbox.status: text NOT NULL DEFAULT 'RECEIVED'::text
relais_inbox.attempts: integer NOT NULL DEFAULT 0
relais_inbox.lost_workers: smallint NOT NULL DEFAULT 0
relais_inbox.next_attempt_at: timestamp with time zone
relais_inbox.processed_at: timestamp with time zone
relais_inbox.error_stage: text
relais_inbox.error_code: character varying(200)
relais_inbox.error_message: character varying(2000)
relais_inbox.inbox: text COLLATE "C" NOT NULL GENERATED 
CASE
    WHEN (strpos(source_system, '::'::text) > 0) THEN split_part(source_system, '::'::text, 1)
    ELSE ''::text
END
relais_inbox.unknown_since: timestamp with time zone
relais_inbox.adopted_by: text COLLATE "C"
relais_inbox.adopted_key: text COLLATE "C"
relais_lane.scope: text COLLATE "C" NOT NULL
relais_lane.lane: smallint NOT NULL
relais_lane.owner: text COLLATE "C"
relais_lane.epoch: bigint NOT NULL DEFAULT 0
relais_lane.wanted_type: text COLLATE "C"
relais_lane.unclean: boolean NOT NULL DEFAULT false
relais_lease.worker: text COLLATE "C" NOT NULL
relais_lease.lease_until: timestamp with time zone NOT NULL
relais_lease.term: bigint NOT NULL
relais_lease.moves: bigint NOT NULL DEFAULT 0
relais_lease.handed_over: bigint NOT NULL DEFAULT 0
relais_outbox.id: bigint NOT NULL IDENTITY
relais_outbox.message_id: uuid NOT NULL DEFAULT (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid
relais_outbox.category: relais_category NOT NULL DEFAULT 'event'::text
relais_outbox.aggregate_type: text NOT NULL
relais_outbox.aggregate_id: text NOT NULL
relais_outbox.event_type: text NOT NULL
relais_outbox.event_version: integer NOT NULL DEFAULT 1
relais_outbox.payload: relais_payload NOT NULL
relais_outbox.headers: relais_headers DEFAULT '{}'::text
relais_outbox.destination: text COLLATE "C" NOT NULL
relais_outbox.msg_key: text COLLATE "C"
relais_outbox.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_outbox.status: text NOT NULL DEFAULT 'PENDING'::text
relais_outbox.attempts: integer NOT NULL DEFAULT 0
relais_outbox.lost_workers: smallint NOT NULL DEFAULT 0
relais_outbox.next_attempt_at: timestamp with time zone
relais_outbox.dispatched_at: timestamp with time zone
relais_outbox.job_id: text
relais_outbox.causation_id: text
relais_outbox.correlation_id: text
relais_outbox.error_code: character varying(200)
relais_outbox.error_message: character varying(2000)
relais_outbox.adopted_by: text COLLATE "C"
relais_outbox.adopted_key: text COLLATE "C"
relais_outbox_position.destination: text COLLATE "C" NOT NULL
relais_outbox_position.position: bigint NOT NULL
relais_parked_key.origin: text NOT NULL
relais_parked_key.destination: text COLLATE "C" NOT NULL DEFAULT ''::text
relais_parked_key.msg_key: text COLLATE "C" NOT NULL
relais_parked_key.key_hash: text COLLATE "C" NOT NULL GENERATED md5(msg_key)
relais_parked_key.dead_letter_id: uuid NOT NULL
relais_parked_key.parked_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process.process_id: uuid NOT NULL
relais_process.process_type: text COLLATE "C" NOT NULL
relais_process.definition: integer NOT NULL
relais_process.business_key: text COLLATE "C"
relais_process.status: text NOT NULL
relais_process.current_step: text
relais_process.data: text NOT NULL
relais_process.retries: integer NOT NULL DEFAULT 0
relais_process.progress: text NOT NULL DEFAULT '{}'::text
relais_process.version: bigint NOT NULL
relais_process.created_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process.updated_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process.key_hold: text NOT NULL DEFAULT 'ONCE'::text
relais_process.released_key: text COLLATE "C"
relais_process_log.process_id: uuid NOT NULL
relais_process_log.seq: bigint NOT NULL
relais_process_log.at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_process_log.event_type: text NOT NULL
relais_process_log.event: text NOT NULL
relais_process_log.message_id: text COLLATE "C"
relais_report.worker: text COLLATE "C" NOT NULL
relais_report.host: text NOT NULL
relais_report.pid: bigint NOT NULL
relais_report.version: text NOT NULL
relais_report.started_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_report.reported_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_report.figures: text NOT NULL
relais_schema.version: bigint NOT NULL
relais_schema.name: text NOT NULL
relais_schema.needs: bigint NOT NULL
relais_schema.checksum: text NOT NULL
relais_schema.applied_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_source_position.source: text COLLATE "C" NOT NULL
relais_source_position.partition_key: text COLLATE "C" NOT NULL
relais_source_position.position: bigint NOT NULL
relais_source_position.updated_at: timestamp with time zone NOT NULL DEFAULT clock_timestamp()
relais_timer.process_id: uuid NOT NULL
relais_timer.step: text NOT NULL
relais_timer.command_id: uuid NOT NULL
relais_timer.after_ms: bigint NOT NULL
relais_timer.due_at: timestamp with time zone NOT NULL
relais_version.aggregate_type: text COLLATE "C" NOT NULL
relais_version.aggregate_id: text COLLATE "C" NOT NULL
relais_version.version: bigint NOT NULL
relais_version.seen_at: timestamp with time zone NOT NULL DEFAULT now()
relais_waiting.id: bigint NOT NULL
relais_waiting.destination: text COLLATE "C" NOT NULL
relais_waiting.msg_key: text COLLATE "C" NOT NULL
relais_waiting.due_at: timestamp with time zone
relais_waiting.holds_key: boolean NOT NULL
relais_waiting.job_id: text
relais_worker.scope: text COLLATE "C" NOT NULL
relais_worker.worker: text COLLATE "C" NOT NULL
relais_worker.event_types: text[] COLLATE "C"
-- constraints
relais_adopted_change.relais_adopted_change_kind_check: CHECK ((kind = ANY (ARRAY['reset'::text, 'unwritten'::text])))
relais_adopted_change.relais_adopted_change_pkey: PRIMARY KEY (id)
relais_attempt.relais_attempt_origin_check: CHECK ((origin = ANY (ARRAY['inbox'::text, 'outbox'::text])))
relais_attempt.relais_attempt_outcome_check: CHECK ((outcome = ANY (ARRAY['retry'::text, 'failed'::text, 'ignored'::text, 'delivered'::text])))
relais_attempt.relais_attempt_pkey: PRIMARY KEY (origin, origin_id, id)
relais_audit.relais_audit_pkey: PRIMARY KEY (id)
relais_bulk_job.relais_bulk_job_destination_check: CHECK ((destination <> ''::text))
relais_bulk_job.relais_bulk_job_end: CHECK (((finished_at IS NOT NULL) = (phase = ANY (ARRAY['RECONCILED'::text, 'ABANDONED'::text]))))
relais_bulk_job.relais_bulk_job_phase: CHECK ((phase = ANY (ARRAY['PLANNED'::text, 'CREATING'::text, 'CREATED'::text, 'UPLOADING'::text, 'UPLOADED'::text, 'CLOSING'::text, 'CLOSED'::text, 'FINISHED'::text, 'RECONCILED'::text, 'ABANDONED'::text])))
relais_bulk_job.relais_bulk_job_pkey: PRIMARY KEY (id)
relais_claim.relais_claim_pkey: PRIMARY KEY (id)
relais_control.relais_control_concurrency_check: CHECK ((concurrency > 0))
relais_control.relais_control_kind_check: CHECK ((kind = ANY (ARRAY['destination'::text, 'source'::text, 'process_type'::text])))
relais_control.relais_control_name_check: CHECK ((name <> ''::text))
relais_control.relais_control_pkey: PRIMARY KEY (kind, name)
relais_control.relais_control_rate_calls_check: CHECK ((rate_calls > 0))
relais_control.relais_control_rate_period_ms_check: CHECK ((rate_period_ms > 0))
relais_credential.relais_credential_pkey: PRIMARY KEY (name)
relais_dead_letter.relais_dead_letter_check: CHECK (((origin = 'process'::text) = (origin_id IS NULL)))
relais_dead_letter.relais_dead_letter_origin_check: CHECK ((origin = ANY (ARRAY['inbox'::text, 'outbox'::text, 'process'::text])))
relais_dead_letter.relais_dead_letter_pkey: PRIMARY KEY (id)
relais_dead_letter.relais_dead_letter_resolution_check: CHECK ((resolution = ANY (ARRAY['retried'::text, 'discarded'::text, 'resumed'::text, 'skipped'::text, 'compensated'::text, 'cancelled'::text, 'answered'::text])))
relais_handled.relais_handled_handler_check: CHECK ((handler <> ''::text))
relais_handled.relais_handled_message_id_check: CHECK ((message_id <> ''::text))
relais_handled.relais_handled_pkey: PRIMARY KEY (message_id, handler)
relais_inbox.relais_inbox_attempts_check: CHECK (((attempts >= 0) AND (attempts < 1000000)))
relais_inbox.relais_inbox_dedupe: UNIQUE (source_system, message_id)
relais_inbox.relais_inbox_error_stage_check: CHECK ((error_stage = ANY (ARRAY['CONSUMER_SERDE'::text, 'BUSINESS'::text])))
relais_inbox.relais_inbox_id_check: CHECK ((id > 0))
relais_inbox.relais_inbox_message_id_check: CHECK ((message_id <> ''::text))
relais_inbox.relais_inbox_payload_or_raw: CHECK (((payload IS NOT NULL) OR (raw_payload_base64 IS NOT NULL)))
relais_inbox.relais_inbox_pkey: PRIMARY KEY (id)
relais_inbox.relais_inbox_source_system_check: CHECK ((source_system <> ''::text))
relais_inbox.relais_inbox_status: CHECK ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text, 'FAILED'::text, 'PROCESSED'::text, 'SERDE_ERROR'::text])))
relais_lane.relais_lane_lane_check: CHECK (((lane >= 0) AND (lane <= 63)))
relais_lane.relais_lane_pkey: PRIMARY KEY (scope, lane)
relais_lease.relais_lease_pkey: PRIMARY KEY (worker)
relais_outbox.relais_outbox_message: UNIQUE (message_id, destination)
relais_outbox.relais_outbox_pkey: PRIMARY KEY (id)
relais_outbox_position.relais_outbox_position_pkey: PRIMARY KEY (destination)
relais_parked_key.relais_parked_key_dead_letter_id_fkey: FOREIGN KEY (dead_letter_id) REFERENCES relais_dead_letter(id)
relais_parked_key.relais_parked_key_origin_check: CHECK ((origin = ANY (ARRAY['inbox'::text, 'outbox'::text])))
relais_parked_key.relais_parked_key_pkey: PRIMARY KEY (origin, destination, key_hash)
relais_process.relais_process_key_hold: CHECK ((key_hold = ANY (ARRAY['ONCE'::text, 'OPEN'::text, 'RELEASED'::text])))
relais_process.relais_process_pkey: PRIMARY KEY (process_id)
relais_process.relais_process_process_type_check: CHECK ((process_type <> ''::text))
relais_process.relais_process_retries_check: CHECK ((retries >= 0))
relais_process.relais_process_status: CHECK ((status = ANY (ARRAY['NEW'::text, 'RUNNING'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'COMPENSATING'::text, 'COMPENSATED'::text, 'PAUSED'::text])))
relais_process.relais_process_version_check: CHECK ((version > 0))
relais_process_log.relais_process_log_pkey: PRIMARY KEY (process_id, seq)
relais_report.relais_report_pkey: PRIMARY KEY (worker)
relais_schema.relais_schema_pkey: PRIMARY KEY (version)
relais_source_position.relais_source_position_pkey: PRIMARY KEY (source, partition_key)
relais_timer.relais_timer_pkey: PRIMARY KEY (process_id)
relais_version.relais_version_pkey: PRIMARY KEY (aggregate_type, aggregate_id)
relais_waiting.relais_waiting_pkey: PRIMARY KEY (id)
relais_worker.relais_worker_pkey: PRIMARY KEY (scope, worker)
-- indexes
relais_adopted_change.relais_adopted_change_pkey: CREATE UNIQUE INDEX relais_adopted_change_pkey ON relais_adopted_change USING btree (id)
relais_adopted_change.relais_adopted_change_row: CREATE INDEX relais_adopted_change_row ON relais_adopted_change USING btree (adopted_by, adopted_key)
relais_attempt.relais_attempt_pkey: CREATE UNIQUE INDEX relais_attempt_pkey ON relais_attempt USING btree (origin, origin_id, id)
relais_audit.relais_audit_actor: CREATE INDEX relais_audit_actor ON relais_audit USING btree (actor, id)
relais_audit.relais_audit_pkey: CREATE UNIQUE INDEX relais_audit_pkey ON relais_audit USING btree (id)
relais_audit.relais_audit_target: CREATE INDEX relais_audit_target ON relais_audit USING btree (target, id)
relais_bulk_job.relais_bulk_job_age: CREATE INDEX relais_bulk_job_age ON relais_bulk_job USING btree (finished_at) WHERE (finished_at IS NOT NULL)
relais_bulk_job.relais_bulk_job_open: CREATE UNIQUE INDEX relais_bulk_job_open ON relais_bulk_job USING btree (destination) WHERE (finished_at IS NULL)
relais_bulk_job.relais_bulk_job_pkey: CREATE UNIQUE INDEX relais_bulk_job_pkey ON relais_bulk_job USING btree (id)
relais_claim.relais_claim_pkey: CREATE UNIQUE INDEX relais_claim_pkey ON relais_claim USING btree (id)
relais_control.relais_control_pkey: CREATE UNIQUE INDEX relais_control_pkey ON relais_control USING btree (kind, name)
relais_credential.relais_credential_pkey: CREATE UNIQUE INDEX relais_credential_pkey ON relais_credential USING btree (name)
relais_dead_letter.relais_dead_letter_age: CREATE INDEX relais_dead_letter_age ON relais_dead_letter USING btree (parked_at, id)
relais_dead_letter.relais_dead_letter_key: CREATE INDEX relais_dead_letter_key ON relais_dead_letter USING btree (hashtextextended(msg_key, (0)::bigint)) WHERE (resolved_at IS NULL)
relais_dead_letter.relais_dead_letter_message: CREATE INDEX relais_dead_letter_message ON relais_dead_letter USING btree (hashtextextended(message_id, (0)::bigint))
relais_dead_letter.relais_dead_letter_open: CREATE INDEX relais_dead_letter_open ON relais_dead_letter USING btree (parked_at, id) WHERE (resolved_at IS NULL)
relais_dead_letter.relais_dead_letter_origin: CREATE INDEX relais_dead_letter_origin ON relais_dead_letter USING btree (origin, origin_id)
relais_dead_letter.relais_dead_letter_pkey: CREATE UNIQUE INDEX relais_dead_letter_pkey ON relais_dead_letter USING btree (id)
relais_dead_letter.relais_dead_letter_process: CREATE UNIQUE INDEX relais_dead_letter_process ON relais_dead_letter USING btree (message_id) WHERE ((origin = 'process'::text) AND (resolved_at IS NULL))
relais_handled.relais_handled_age: CREATE INDEX relais_handled_age ON relais_handled USING btree (processed_at)
relais_handled.relais_handled_pkey: CREATE UNIQUE INDEX relais_handled_pkey ON relais_handled USING btree (message_id, handler)
relais_inbox.relais_inbox_adopted: CREATE INDEX relais_inbox_adopted ON relais_inbox USING btree (adopted_by, adopted_key) WHERE (adopted_by IS NOT NULL)
relais_inbox.relais_inbox_dedupe: CREATE UNIQUE INDEX relais_inbox_dedupe ON relais_inbox USING btree (source_system, message_id)
relais_inbox.relais_inbox_due: CREATE INDEX relais_inbox_due ON relais_inbox USING btree (next_attempt_at) WHERE ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text])) AND (next_attempt_at IS NOT NULL))
relais_inbox.relais_inbox_fresh: CREATE INDEX relais_inbox_fresh ON relais_inbox USING btree (((id + 0))) WHERE ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text])) AND (next_attempt_at IS NULL))
relais_inbox.relais_inbox_held: CREATE INDEX relais_inbox_held ON relais_inbox USING btree (hashtextextended(msg_key, (0)::bigint), ((id + 0))) WHERE ((status = ANY (ARRAY['RECEIVED'::text, 'RETRY'::text])) AND (next_attempt_at IS NOT NULL))
relais_inbox.relais_inbox_pkey: CREATE UNIQUE INDEX relais_inbox_pkey ON relais_inbox USING btree (id)
relais_inbox.relais_inbox_trouble: CREATE INDEX relais_inbox_trouble ON relais_inbox USING btree (status, id) WHERE (status = ANY (ARRAY['FAILED'::text, 'SERDE_ERROR'::text, 'RETRY'::text]))
relais_lane.relais_lane_pkey: CREATE UNIQUE INDEX relais_lane_pkey ON relais_lane USING btree (scope, lane)
relais_lease.relais_lease_pkey: CREATE UNIQUE INDEX relais_lease_pkey ON relais_lease USING btree (worker)
relais_outbox.relais_outbox_cause: CREATE INDEX relais_outbox_cause ON relais_outbox USING hash (causation_id)
relais_outbox.relais_outbox_destination: CREATE INDEX relais_outbox_destination ON relais_outbox USING btree (destination, id)
relais_outbox.relais_outbox_message: CREATE UNIQUE INDEX relais_outbox_message ON relais_outbox USING btree (message_id, destination)
relais_outbox.relais_outbox_pkey: CREATE UNIQUE INDEX relais_outbox_pkey ON relais_outbox USING btree (id)
relais_outbox_position.relais_outbox_position_pkey: CREATE UNIQUE INDEX relais_outbox_position_pkey ON relais_outbox_position USING btree (destination)
relais_parked_key.relais_parked_key_age: CREATE INDEX relais_parked_key_age ON relais_parked_key USING btree (parked_at, key_hash)
relais_parked_key.relais_parked_key_dead_letter: CREATE INDEX relais_parked_key_dead_letter ON relais_parked_key USING btree (dead_letter_id)
relais_parked_key.relais_parked_key_pkey: CREATE UNIQUE INDEX relais_parked_key_pkey ON relais_parked_key USING btree (origin, destination, key_hash)
relais_process.relais_process_age: CREATE INDEX relais_process_age ON relais_process USING btree (created_at, process_id)
relais_process.relais_process_key: CREATE UNIQUE INDEX relais_process_key ON relais_process USING btree (((md5(business_key))::uuid), process_type) WHERE (business_key IS NOT NULL)
relais_process.relais_process_pkey: CREATE UNIQUE INDEX relais_process_pkey ON relais_process USING btree (process_id)
relais_process.relais_process_released_key: CREATE INDEX relais_process_released_key ON relais_process USING btree (((md5(released_key))::uuid), process_type, created_at, process_id) WHERE (released_key IS NOT NULL)
relais_process.relais_process_state: CREATE INDEX relais_process_state ON relais_process USING btree (status, created_at, process_id) WHERE (status <> 'SUCCEEDED'::text)
relais_process.relais_process_type: CREATE INDEX relais_process_type ON relais_process USING btree (process_type, created_at, process_id)
relais_process_log.relais_process_log_message: CREATE INDEX relais_process_log_message ON relais_process_log USING btree (hashtextextended(message_id, (0)::bigint)) WHERE (message_id IS NOT NULL)
relais_process_log.relais_process_log_pkey: CREATE UNIQUE INDEX relais_process_log_pkey ON relais_process_log USING btree (process_id, seq)
relais_report.relais_report_pkey: CREATE UNIQUE INDEX relais_report_pkey ON relais_report USING btree (worker)
relais_schema.relais_schema_pkey: CREATE UNIQUE INDEX relais_schema_pkey ON relais_schema USING btree (version)
relais_source_position.relais_source_position_pkey: CREATE UNIQUE INDEX relais_source_position_pkey ON relais_source_position USING btree (source, partition_key)
relais_timer.relais_timer_due: CREATE INDEX relais_timer_due ON relais_timer USING btree (due_at)
relais_timer.relais_timer_pkey: CREATE UNIQUE INDEX relais_timer_pkey ON relais_timer USING btree (process_id)
relais_version.relais_version_pkey: CREATE UNIQUE INDEX relais_version_pkey ON relais_version USING btree (aggregate_type, aggregate_id)
relais_waiting.relais_waiting_due: CREATE INDEX relais_waiting_due ON relais_waiting USING btree (destination, due_at) WHERE (due_at IS NOT NULL)
relais_waiting.relais_waiting_job: CREATE INDEX relais_waiting_job ON relais_waiting USING btree (job_id, ((id + 0))) WHERE (job_id IS NOT NULL)
relais_waiting.relais_waiting_key: CREATE INDEX relais_waiting_key ON relais_waiting USING btree (destination, hashtextextended(msg_key, (0)::bigint), ((id + 0)))
relais_waiting.relais_waiting_pkey: CREATE UNIQUE INDEX relais_waiting_pkey ON relais_waiting USING btree (id)
relais_worker.relais_worker_pkey: CREATE UNIQUE INDEX relais_worker_pkey ON relais_worker USING btree (scope, worker)
-- triggers
relais_inbox.relais_inbox_defaults: CREATE TRIGGER relais_inbox_defaults BEFORE INSERT ON relais_inbox FOR EACH ROW WHEN (((new.msg_key IS NULL) OR (new.headers IS NULL))) EXECUTE FUNCTION relais_inbox_defaults()
relais_inbox.relais_inbox_json: CREATE TRIGGER relais_inbox_json AFTER INSERT OR UPDATE OF payload, headers ON relais_inbox FOR EACH ROW WHEN (
        CASE
            WHEN (new.adopted_by IS NULL) THEN ((((new.payload)::json IS NULL) <> (new.payload IS NULL)) OR (json_typeof((new.headers)::json) IS DISTINCT FROM 'object'::text))
            ELSE false
        END) EXECUTE FUNCTION relais_refuse()
-- functions
function.relais_check_external: BEGIN
    IF EXISTS (SELECT FROM relais_worker AS w JOIN relais_lease AS l ON l.worker = w.worker
               WHERE w.scope = 'outbox:' || the_destination AND l.lease_until > clock_timestamp()) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use', MESSAGE = format(
            'cannot claim messages of %s: a running relais serves it; declare it with external = true',
            the_destination);
    END IF;
END
function.relais_claim_one: DECLARE
    found_destination text;
BEGIN
    SELECT o.destination INTO found_destination FROM relais_outbox AS o WHERE o.id = the_row AND o.attempts = 0;
    IF found_destination IS NULL THEN
        RETURN;
    END IF;
    PERFORM relais_check_external(found_destination);
    RETURN QUERY SELECT * FROM relais_claim_rows(ARRAY[the_row], the_worker, the_lease);
END SECURITY DEFINER
function.relais_claim_rows: 
    WITH free AS MATERIALIZED (
        SELECT o.id FROM relais_outbox AS o
        WHERE o.id = ANY (the_rows) AND o.status = 'PENDING'
          AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock_timestamp())
        ORDER BY o.id
        FOR NO KEY UPDATE SKIP LOCKED),
    claimed AS (
        INSERT INTO relais_claim AS c (id, worker, lease_until)
        SELECT f.id, the_worker, clock_timestamp() + the_lease FROM free AS f ORDER BY f.id
        ON CONFLICT (id) DO UPDATE
        SET worker = excluded.worker, fence = excluded.fence, lease_until = excluded.lease_until
        WHERE c.lease_until <= clock_timestamp()
        RETURNING c.id, c.fence)
    SELECT o.id, c.fence, o.message_id, o.category::text, o.aggregate_type, o.aggregate_id, o.event_type,
           o.event_version, o.payload::text, coalesce(o.headers::text, '{}'), o.destination,
           coalesce(o.msg_key, o.aggregate_id), o.attempts, o.created_at, o.correlation_id, o.causation_id
    FROM claimed AS c
    JOIN relais_outbox AS o ON o.id = c.id
    ORDER BY o.id

function.relais_end_claim: BEGIN
    PERFORM FROM relais_outbox WHERE id = the_row AND status = 'PENDING' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    DELETE FROM relais_claim WHERE id = the_row AND fence = the_fence;
    RETURN FOUND;
END
function.relais_inbox_defaults: BEGIN
    NEW.msg_key := coalesce(NEW.msg_key, NEW.aggregate_id, NEW.key_str, NEW.message_id);
    NEW.headers := coalesce(NEW.headers, '{}');
    RETURN NEW;
END
function.relais_leave_waiting: BEGIN
    IF to_regclass('relais_waiting') IS NOT NULL THEN
        EXECUTE 'DELETE FROM relais_waiting WHERE id = $1' USING the_row;
    END IF;
END
function.relais_mark_failed: DECLARE
    the_worker text;
BEGIN
    SELECT c.worker INTO the_worker FROM relais_claim AS c WHERE c.id = the_row AND c.fence = the_fence;
    IF NOT relais_end_claim(the_row, the_fence) THEN
        RETURN FALSE;
    END IF;
    INSERT INTO relais_attempt (origin, origin_id, attempt, outcome, error_code, error_message, worker)
    SELECT 'outbox', o.id, o.attempts + 1, CASE WHEN the_next_attempt IS NULL THEN 'failed' ELSE 'retry' END,
           'EXTERNAL', left(the_error, 2000), the_worker
    FROM relais_outbox AS o WHERE o.id = the_row;
    UPDATE relais_outbox
    SET attempts = attempts + 1, next_attempt_at = the_next_attempt, error_code = 'EXTERNAL',
        error_message = left(the_error, 2000),
        status = CASE WHEN the_next_attempt IS NULL THEN 'FAILED' ELSE status END
    WHERE id = the_row;
    IF the_next_attempt IS NULL THEN
        PERFORM relais_leave_waiting(the_row);
        INSERT INTO relais_dead_letter (origin, origin_id, message_id, destination, event_type, msg_key, payload,
                                        headers, failed_status, error_class, error_message, attempts, parked_by)
        SELECT 'outbox', o.id, o.message_id::text, o.destination, o.event_type,
               coalesce(o.msg_key, o.aggregate_id), o.payload, coalesce(o.headers::text, '{}'), o.status,
               o.error_code, o.error_message, o.attempts, the_worker
        FROM relais_outbox AS o WHERE o.id = the_row;
    END IF;
    PERFORM relais_write_back_later(the_row);
    RETURN TRUE;
END SECURITY DEFINER
function.relais_mark_published: BEGIN
    IF NOT relais_end_claim(the_row, the_fence) THEN
        RETURN FALSE;
    END IF;
    PERFORM relais_leave_waiting(the_row);
    UPDATE relais_outbox
    SET status = 'DISPATCHED', dispatched_at = clock_timestamp(), next_attempt_at = NULL, error_code = NULL,
        error_message = NULL
    WHERE id = the_row;
    PERFORM relais_write_back_later(the_row);
    RETURN TRUE;
END SECURITY DEFINER
function.relais_park: DECLARE
    stored text := the_payload;
    row_id bigint;
    letter uuid;
BEGIN
    -- What is no JSON is kept as a JSON text.
    BEGIN
        PERFORM stored::json;
    EXCEPTION WHEN invalid_text_representation THEN
        stored := to_json(the_payload)::text;
    END;
    INSERT INTO relais_inbox (message_id, source_system, topic, partition_num, offset_num, msg_key, event_type,
                              payload, status, attempts, error_stage, error_code, error_message)
    VALUES (the_command_id, 'parked', the_parked_by, 0, 0, coalesce(the_business_key, the_command_id),
            the_command_name, coalesce(stored, 'null'), 'FAILED', greatest(the_attempts, 0), 'BUSINESS',
            left(the_error_class, 200), left(the_error_message, 2000))
    ON CONFLICT (source_system, message_id) DO UPDATE
    SET status = 'FAILED', next_attempt_at = NULL, payload = excluded.payload, event_type = excluded.event_type,
        attempts = excluded.attempts, error_stage = excluded.error_stage, error_code = excluded.error_code,
        error_message = excluded.error_message
    RETURNING id INTO row_id;
    INSERT INTO relais_dead_letter (origin, origin_id, message_id, source_system, event_type, msg_key, payload,
                                    failed_status, error_class, error_message, attempts, parked_by)
    SELECT 'inbox', i.id, i.message_id, i.source_system, i.event_type, i.msg_key, i.payload, the_failed_status,
           i.error_code, i.error_message, i.attempts, the_parked_by
    FROM relais_inbox AS i WHERE i.id = row_id
    RETURNING id INTO letter;
    RETURN letter;
END SECURITY DEFINER
function.relais_refuse: BEGIN RAISE EXCEPTION USING ERRCODE = 'check_violation',
        MESSAGE = 'cannot store the row: headers must be a JSON object, as in {"tenant":"a"}'; END
function.relais_refuse_id: BEGIN
    RAISE EXCEPTION USING ERRCODE = 'unique_violation', MESSAGE = format(
        'cannot send %s: message id %s belongs to another message of destination %s; use another id',
        event_type, message_id, destination);
END
function.relais_renew_claim: BEGIN
    UPDATE relais_claim SET lease_until = clock_timestamp() + the_lease
    WHERE id = the_row AND fence = the_fence AND lease_until > clock_timestamp();
    RETURN FOUND;
END SECURITY DEFINER
function.relais_reschedule: 
    SELECT relais_mark_failed(the_row, the_fence, the_error,
                              clock_timestamp() + greatest(the_backoff_ms, 0) * INTERVAL '1 millisecond')
 SECURITY DEFINER
function.relais_sweep_batch: BEGIN
    PERFORM relais_check_external(the_destination);
    -- Of messages that were settled by an operator, or removed.
    DELETE FROM relais_claim WHERE lease_until < clock_timestamp() - INTERVAL '1 day';
    RETURN QUERY SELECT * FROM relais_claim_rows(ARRAY(
        SELECT o.id FROM relais_outbox AS o
        WHERE o.destination = the_destination AND o.status = 'PENDING'
          AND (o.next_attempt_at IS NULL OR o.next_attempt_at <= clock_timestamp())
          AND NOT EXISTS (SELECT FROM relais_claim AS c
                          WHERE c.id = o.id AND c.lease_until > clock_timestamp())
        ORDER BY o.id
        LIMIT least(greatest(the_limit, 0), 1000)), the_worker, the_lease);
END SECURITY DEFINER
function.relais_write_back_later: BEGIN
    INSERT INTO relais_adopted_change (adopted_by, adopted_key, message_id, kind)
    SELECT o.adopted_by, o.adopted_key, o.message_id, 'unwritten'
    FROM relais_outbox AS o
    WHERE o.id = the_row AND o.adopted_by IS NOT NULL;
END
