//! The picture of a definition.

use super::*;

#[test]
fn a_diagram_shows_the_way_forward_the_way_back_and_the_ends() {
    let mut declared = declared();
    declared.steps[1].call.retry.attempts_max = 1;
    declared.steps[1].call.timeout = None;
    let expected = "\
stateDiagram-v2
    [*] --> step1 : Placed
    step1 : pay
    step1 : sends pay to pays
    step1 : waits for payDone, payFailed, payBusy
    step1 : no reply within 30s is failed for now
    step1 --> step1 : failed for now, at most 2 attempts
    step1 --> step2 : completed
    step1 --> FAILED : failed for good
    step2 : pack
    step2 : sends pack to packs
    step2 : waits for packDone, packFailed, packBusy
    step2 --> step3 : completed
    step2 --> undo1 : failed for good
    step3 : ship
    step3 : sends ship to ships
    step3 : waits for shipDone, shipFailed, shipBusy
    step3 : no reply within 30s is failed for now
    step3 --> step3 : failed for now, at most 2 attempts
    step3 --> SUCCEEDED : completed
    step3 --> undo1 : failed for good
    undo1 : undo pay
    undo1 : sends refund to refunds
    undo1 : waits for refundDone, refundFailed, refundBusy
    undo1 : no reply within 30s is failed for now
    undo1 --> undo1 : failed for now, at most 2 attempts
    undo1 : waits for an operator if it failed for good
    undo1 --> COMPENSATED : compensated
    SUCCEEDED --> [*]
    FAILED --> [*]
    COMPENSATED --> [*]
";
    let recall = declared.steps[2].compensation.take();
    assert_eq!(declared.clone().build().unwrap().diagram(), expected);
    declared.steps[2].compensation = recall;
    declared.steps.push(step("bill", None));
    let diagram = declared.build().unwrap().diagram();
    assert!(diagram.contains("step4 --> undo3 : failed for good\n"));
    assert!(diagram.contains("undo3 --> undo1 : compensated\n"));
}

#[test]
fn names_cannot_break_a_diagram() {
    let mut declared = declared();
    declared.starts = vec!["a: b --> c;".to_owned()];
    declared.steps[0].call.target = CallTarget::Destination("HTTP:SFDC".to_owned());
    let diagram = declared.build().unwrap().diagram();
    assert!(diagram.contains("[*] --> step1 : a#58; b --#62; c#59;\n"));
    assert!(diagram.contains("sends pay to HTTP#58;SFDC\n"));
}
