//! `[[adopt]]`: what is read, and what is refused.

use std::path::Path;

use relais::adopt::AdoptDestination;

use super::{Settings, read};

const STORE: &str = "[store]\nurl = \"postgres://db/app\"\n\
    [[destination]]\nname = \"orders\"\nkind = \"log\"\n";

fn settings(text: &str) -> Result<Settings, String> {
    let text = format!("{STORE}{text}");
    let settings = read(Path::new("relais.toml"), &text, &|_| None);
    settings.map(|(settings, _)| settings).map_err(|error| error.to_string())
}

fn assert_refused(text: &str, expected: &str) {
    let error = settings(text).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

const ADOPT: &str = "[[adopt]]\ntable = \"shop.outbox\"\npreset = \"order-service\"\n";

#[test]
fn an_adoption_is_read_with_its_changes_of_the_preset() {
    let text = format!(
        "{ADOPT}destination = \"column:topic\"\nexisting = true\n\
         columns = {{ error = \"\", sent_at = \"done_at\" }}\nstates = {{ sent = \"DONE\" }}\n"
    );
    let settings = settings(&text).unwrap();
    let adoption = &settings.adoptions[0].adoption;
    assert_eq!(adoption.destination, AdoptDestination::Column("topic".to_owned()));
    assert_eq!((adoption.column("error"), adoption.column("sent_at")), (None, Some("done_at")));
    assert_eq!((adoption.state("new"), adoption.state("sent")), (Some("NEW"), Some("DONE")));
    assert!(adoption.existing);
}

#[test]
fn what_cannot_work_is_refused_with_its_key() {
    assert_refused(&format!("{ADOPT}destination = \"ordres\""), "did you mean `orders`?");
    assert_refused(&format!("{ADOPT}destination = \"column:\""), "names no column");
    let twice = format!("{ADOPT}destination = \"orders\"\n{ADOPT}destination = \"orders\"");
    assert_refused(&twice, "is adopted twice");
    let unknown = format!("{ADOPT}destination = \"orders\"\ncolumns = {{ state = \"x\" }}");
    assert_refused(&unknown, "`state` is not known; one of id,");
    let custom = "[[adopt]]\ntable = \"t\"\npreset = \"custom\"\ndestination = \"orders\"";
    assert_refused(custom, "needs a column for `payload`");
    assert_refused("[[adopt]]\npreset = \"masstransit\"", "is not known here; one of");
}

#[test]
fn an_inbox_table_has_no_destination_and_goes_to_the_inbox_of_the_program() {
    let inbox = "[[adopt]]\ntable = \"inbox_min\"\npreset = \"minimal-inbox\"\n";
    let read = settings(&format!("[inbox]\nname = \"billing\"\n{inbox}")).unwrap();
    let adoption = &read.adoptions[0].adoption;
    assert_eq!(adoption.destination, AdoptDestination::Inbox("billing".to_owned()));
    assert_eq!(adoption.column("source"), Some("source_system"));
    assert!(!adoption.may_have("orders"));
    assert_refused(&format!("{inbox}destination = \"orders\""), "are received messages");
    assert_refused(ADOPT, "is missing");
    let outbox = format!("{ADOPT}destination = \"orders\"\ncolumns = {{ source = \"s\" }}");
    assert_refused(&outbox, "`source` is a column of an inbox table");
}

const INBOX: &str = "[[adopt]]\ntable = 'shop.\"Inbox_Min\"'\npreset = \"minimal-inbox\"\n";

fn handler(name: &str, on: &str) -> String {
    format!(
        "[[handler]]\nname = \"{name}\"\nkind = \"http\"\non = \"{on}\"\n\
         url = \"https://{name}.example.com/\"\n"
    )
}

#[test]
fn rows_of_an_inbox_table_have_one_handler() {
    let (one, two) = (handler("mail", "Inbox_Min"), handler("billing", "Inbox_Min"));
    settings(&format!("{INBOX}{one}")).unwrap();
    let route = "[[route]]\non = \"Inbox_Min\"\ndestination = \"orders\"\n";
    settings(&format!("{INBOX}{route}")).unwrap();
    let both = "is handled by [[handler]] `mail` and [[handler]] `billing`: a row has one result";
    assert_refused(&format!("{INBOX}{one}{two}"), both);
    assert_refused(
        &format!("{INBOX}{one}{route}"),
        "is handled by [[handler]] `mail` and [[route]]: a row has one result",
    );
    // A column may have any event type; without one, others cannot be those of the rows.
    let others = handler("mail", "Paid") + &handler("billing", "Paid");
    settings(&format!("{INBOX}{others}")).unwrap();
    let column = "columns = { event_type = \"type\" }\n";
    assert_refused(&format!("{INBOX}{column}{others}"), "`Paid` is handled by");
}

#[test]
fn rows_of_an_external_destination_are_marked_on_postgres_only() {
    let external = "[[destination]]\nname = \"theirs\"\nexternal = true\n";
    let text = format!("{ADOPT}destination = \"theirs\"\n{external}");
    assert!(!settings(&text).unwrap().is_idle(), "relais writes the results");
    let text = format!("[store]\nurl = \"sqlite:relais.db\"\n{text}");
    let read = read(Path::new("relais.toml"), &text, &|_| None);
    let error = read.map(drop).unwrap_err().to_string();
    assert!(error.contains("this program would never mark a row"), "{error}");
}
