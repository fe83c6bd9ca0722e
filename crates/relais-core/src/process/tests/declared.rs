//! What a declared process may say, and what becomes of its data.

use super::*;

/// Everything that is wrong with a process after `spoil`.
fn errors(spoil: impl FnOnce(&mut DeclaredProcess)) -> Vec<String> {
    let mut spoilt = declared();
    spoil(&mut spoilt);
    spoilt.build().unwrap_err()
}

fn payload_errors(place: usize, template: &str) -> Vec<String> {
    errors(|declared| declared.steps[place].call.payload = Some(template.to_owned()))
}

#[test]
fn a_sound_one_is_built() {
    let definition = declared().build().unwrap();
    assert_eq!((definition.process_type(), definition.version()), ("Order", 1));
    assert_eq!(definition.step_names(), ["pay", "pack", "ship"]);
}

#[test]
fn what_is_missing_or_empty_is_named() {
    assert_eq!(errors(|d| d.process_type = " ".into()), ["process type is empty"]);
    assert_eq!(
        errors(|d| d.process_type = "a\0".into()),
        ["process type `a\\0` has a control character"]
    );
    assert_eq!(errors(|d| d.version = 0), ["version 0 must be at least 1"]);
    assert_eq!(errors(|d| d.steps.clear()), ["has no steps"]);
    assert_eq!(
        errors(|d| d.starts.clear()),
        ["starts on no event type, so there would never be one"]
    );
    assert_eq!(
        errors(|d| d.steps[1].call.target = CallTarget::Destination(String::new())),
        ["step `pack`: destination is empty"]
    );
    assert_eq!(
        errors(|d| d.steps[0].compensation.as_mut().unwrap().command.clear()),
        ["step `pay`, compensation: command is empty"]
    );
    assert_eq!(
        errors(|d| d.steps[1].call.completed.clear()),
        ["step `pack`: no reply means completed, so it could never succeed"]
    );
    assert_eq!(
        errors(|d| d.steps[1].call.timeout = Some(Duration::ZERO)),
        ["step `pack`: a time-out of zero leaves no time to answer"]
    );
}

#[test]
fn names_that_cannot_stand_in_a_header_or_pointer_are_refused() {
    for name in ["", "a/b", "zwölf", "a b", &"x".repeat(201)] {
        let errors = errors(|d| d.steps[1].name = name.to_owned());
        assert_eq!(errors.len(), 1, "{name}");
        assert!(errors[0].contains("its name needs"), "{}", errors[0]);
    }
}

#[test]
fn too_many_steps_are_refused() {
    let errors = errors(|d| d.steps = (0..101).map(|n| step(&format!("s{n}"), None)).collect());
    assert_eq!(errors, ["has 101 steps, at most 100 are allowed"]);
}

#[test]
fn names_used_twice_are_refused() {
    assert_eq!(
        errors(|d| d.steps[1].name = "pay".into()),
        ["step `pay`: there are two steps with this name"]
    );
    assert_eq!(errors(|d| d.starts.push("Placed".into())), ["starts on `Placed` twice"]);
}

#[test]
fn ambiguous_replies_are_refused() {
    assert_eq!(
        errors(|d| d.steps[0].call.failed = vec!["payDone".into()]),
        ["step `pay`: reply `payDone` has two meanings here; keep one"]
    );
    assert_eq!(
        errors(|d| d.steps[0].call.completed = vec!["Placed".into()]),
        ["step `pay`: reply `Placed` starts the process too; use another type for one of them"]
    );
    let by_key = Correlate::BusinessKey("payload:/id".parse().unwrap());
    assert_eq!(
        errors(|d| {
            d.steps[1].call.completed = vec!["payDone".into()];
            d.steps[1].call.correlate = by_key.clone();
        }),
        [
            "step `pack`: reply `payDone` finds its process in another way than in step `pay`; use one way"
        ]
    );
    assert_eq!(
        errors(|d| d.steps[0].call.completed = vec!["relais.TimerFired".into()]),
        ["step `pay`: reply type `relais.TimerFired` is reserved for relais"]
    );
}

#[test]
fn a_correlation_that_can_find_nothing_is_refused() {
    let by_key = |declared: &mut DeclaredProcess| {
        declared.business_key = None;
        declared.steps[2].call.correlate = Correlate::BusinessKey("key".parse().unwrap());
    };
    assert_eq!(errors(by_key).len(), 1);
    assert!(
        errors(by_key)[0].starts_with("step `ship`: replies find the process by its business key")
    );
    let by_position = errors(|d| {
        d.steps[1].call.correlate = Correlate::ProcessId("position".parse().unwrap());
    });
    assert_eq!(by_position.len(), 3, "one for each reply");
    assert_eq!(errors(|d| d.business_key = Some("position".parse().unwrap())).len(), 1);
}

#[test]
fn templates_point_only_to_what_is_there_by_then() {
    let starts = |error: &str| format!("step `pack`: payload template: {error}");
    for (template, error) in [
        ("{{/steps/ship/id}}", "`{{/steps/ship/id}}` uses step `ship`, which is not done by then"),
        ("{{/steps/pack}}", "`{{/steps/pack}}` uses step `pack`, which is not done by then"),
        ("{{/steps/bill}}", "`{{/steps/bill}}` uses step `bill`, which is not done by then"),
        ("{{/inputs/id}}", "`{{/inputs/id}}` is no place in the data"),
        ("{{input}}", "`{{input}}` is no place in the data"),
        ("{{each}}", "`{{each}}` is no place in the data"),
        ("{\"a\": {{/input/id}", "`{{` without `}}` in the payload template"),
        ("{\"a\": {{/input/id}}", "filled template is not valid JSON"),
        ("{\"a\": \"{{/input/id}}\"}", "filled template is not valid JSON"),
    ] {
        let errors = payload_errors(1, template);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with(&starts(error)), "{}", errors[0]);
    }
    let mut sound = declared();
    sound.steps[1].call.payload = Some(r#"{"a":{{/input}},"b":{{ /steps/pay/n }}}"#.into());
    sound.steps[2].compensation.as_mut().unwrap().payload = Some("{{/steps/ship}}".into());
    sound.build().unwrap();
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let errors = errors(|d| {
        d.version = -1;
        d.steps[0].name = "ship".into();
        d.steps[1].call.payload = Some("{{/steps/pay}}".into());
    });
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn templates_are_filled_with_what_came_in_byte_for_byte() {
    let mut declared = declared();
    declared.steps[1].call.payload =
        Some(r#"{"order":{{/input/id}},"paid":{{/steps/pay/amount}}}"#.to_owned());
    let definition = declared.build().unwrap();
    let placed = row("m-0", "Placed", r#"{"id": 9007199254740993123456789}"#);
    let mut world = World::start_with(definition, &placed);
    assert_eq!(world.sent[0].payload, world.process.data, "without a template: the data");
    let mut reply = world.reply_row("payDone", None);
    reply.payload = Some(r#"{"amount": 1.10}"#.to_owned());
    world.take(&Input::Reply(&reply)).unwrap();
    assert_eq!(world.sent[1].payload, r#"{"order":9007199254740993123456789,"paid":1.10}"#);
    assert_eq!(
        world.process.data,
        r#"{"input":{"id": 9007199254740993123456789},"steps":{"pay":{"amount": 1.10}}}"#
    );
}

#[test]
fn payloads_beyond_what_the_log_can_hold_as_json_are_kept_as_text() {
    let mut world = World::start();
    let mut reply = world.reply_row("payDone", None);
    reply.payload = Some(r#"{"n": 1e400}"#.to_owned());
    world.take(&Input::Reply(&reply)).unwrap();
    let ProcessEvent::StepCompleted { result_data, .. } = &world.last.log[0].event else {
        panic!("the step is completed")
    };
    assert_eq!(result_data, r#"{"n": 1e400}"#);
    assert!(world.process.data.contains("1e400"));
}

#[test]
fn numbers_of_many_digits_stand_in_the_log_as_they_came() {
    let placed = row("m-0", "Placed", r#"{"id": 9007199254740993123456789}"#);
    let world = World::start_with(declared().build().unwrap(), &placed);
    let ProcessEvent::ProcessStarted { initial_data, .. } = &world.last.log[0].event else {
        panic!("the process is started")
    };
    assert_eq!(initial_data, world.process.data.as_str());
    assert!(world.process.data.contains("9007199254740993123456789"));
}

#[test]
fn a_failing_reply_says_why_or_its_type_does() {
    let mut world = World::start();
    let mut reply = world.reply_row("payFailed", None);
    reply.payload = None;
    world.take(&Input::Reply(&reply)).unwrap();
    let ProcessEvent::StepFailed { error, .. } = &world.last.log[0].event else {
        panic!("the step has failed")
    };
    assert_eq!(error, "replied `payFailed`");
}

#[test]
fn data_that_is_no_json_is_refused() {
    let definition = declared().build().unwrap();
    assert_eq!(definition.begun(None, "{oops").unwrap_err().code, "INVALID_JSON");
}
