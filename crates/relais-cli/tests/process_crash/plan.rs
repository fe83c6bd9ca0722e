//! Which orders there are, and how the services treat each: the same in every run.

/// An order by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Order(pub(crate) usize);

/// The behaviour of the services for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Smooth,
    /// The second step is busy at first.
    Busy,
    /// The reply of the first step comes twice, that of the second once more under another id.
    Twice,
    /// The first answer about the second step is lost until it is asked for again.
    Late,
    /// The step is refused.
    Refused(Step),
    /// The third step is refused, and compensating the second is busy at first.
    BusyUndo,
    /// The third step is done but not answered before its last time-out; the answer comes while what
    /// was done before it is undone.
    InDoubt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    Payment,
    Stock,
    Shipment,
}

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Way {
    Do,
    Undo,
}

/// The answer of a service to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    Busy,
    Refused,
}

impl Step {
    pub(crate) const ALL: [Self; 3] = [Self::Payment, Self::Stock, Self::Shipment];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Stock => "stock",
            Self::Shipment => "shipment",
        }
    }

    pub(crate) fn command(self, way: Way) -> &'static str {
        match (self, way) {
            (Self::Payment, Way::Do) => "TakePayment",
            (Self::Payment, Way::Undo) => "RefundPayment",
            (Self::Stock, Way::Do) => "ReserveStock",
            (Self::Stock, Way::Undo) => "ReleaseStock",
            (Self::Shipment, Way::Do) => "Ship",
            (Self::Shipment, Way::Undo) => "TakeBack",
        }
    }

    /// The step and way of a command.
    pub(crate) fn of_command(command: &str) -> (Self, Way) {
        let all = Self::ALL.into_iter().flat_map(|step| [(step, Way::Do), (step, Way::Undo)]);
        let mut found = all.filter(|(step, way)| step.command(*way) == command);
        found.next().unwrap_or_else(|| panic!("an unknown command: {command}"))
    }
}

impl Order {
    pub(crate) fn script(self) -> Script {
        match self.0 % 50 {
            3 | 13 | 23 => Script::Busy,
            4 | 14 | 24 => Script::Twice,
            5 | 15 => Script::Late,
            6 => Script::Refused(Step::Payment),
            7 | 17 => Script::Refused(Step::Stock),
            8 | 18 => Script::Refused(Step::Shipment),
            9 | 19 => Script::BusyUndo,
            11 => Script::InDoubt,
            _ => Script::Smooth,
        }
    }

    /// Two messages want to start it: the second is a dead letter.
    pub(crate) fn is_wanted_twice(self) -> bool {
        self.0 % 100 == 1
    }

    /// Its start message is sent twice.
    pub(crate) fn is_sent_twice(self) -> bool {
        self.0 % 50 == 2
    }

    /// Returns its start message; each kind of process has its own time-outs.
    pub(crate) fn start(self) -> &'static str {
        match self.script() {
            Script::Late => "HastyPlaced",
            Script::InDoubt => "DoubtfulPlaced",
            _ => "OrderPlaced",
        }
    }

    /// Returns the state in which it must end.
    pub(crate) fn end(self) -> &'static str {
        match self.script() {
            Script::Smooth | Script::Busy | Script::Twice | Script::Late => "SUCCEEDED",
            Script::Refused(Step::Payment) => "FAILED",
            Script::Refused(_) | Script::BusyUndo | Script::InDoubt => "COMPENSATED",
        }
    }

    /// Returns the answer to the n-th attempt of a command.
    pub(crate) fn ending(self, step: Step, way: Way, attempt: usize) -> Ending {
        match (self.script(), way) {
            (Script::Busy, Way::Do) if step == Step::Stock && attempt == 1 => Ending::Busy,
            (Script::BusyUndo, Way::Undo) if step == Step::Stock && attempt == 1 => Ending::Busy,
            (Script::BusyUndo, Way::Do) if step == Step::Shipment => Ending::Refused,
            (Script::Refused(refused), Way::Do) if step == refused => Ending::Refused,
            _ => Ending::Done,
        }
    }

    /// Every effect it must have had in the end, in order.
    pub(crate) fn effects(self) -> Vec<(Step, Way)> {
        let all = Step::ALL.into_iter();
        let done = all.filter(|step| self.ending(*step, Way::Do, usize::MAX) == Ending::Done);
        // What comes after a step that is refused never begins.
        let done: Vec<Step> = match self.script() {
            Script::Refused(refused) => done.take_while(|step| *step < refused).collect(),
            _ => done.collect(),
        };
        let undone = done.iter().rev().filter(|_| self.end() == "COMPENSATED");
        let undone: Vec<_> = undone.map(|step| (*step, Way::Undo)).collect();
        done.into_iter().map(|step| (step, Way::Do)).chain(undone).collect()
    }
}

/// Settings of the process that each start begins; they differ in their time-outs alone.
pub(crate) fn processes() -> String {
    const LONG: &str = "10m";
    let kinds = [
        ("order", "OrderPlaced", [LONG; 3]),
        ("hasty", "HastyPlaced", [LONG, "2s", LONG]),
        ("doubtful", "DoubtfulPlaced", [LONG, LONG, "1s"]),
    ];
    let mut text = String::new();
    for (kind, start, timeouts) in kinds {
        text += &format!(
            "[[process]]\ntype = \"{kind}\"\nstart = \"{start}\"\nbusiness_key = \"payload:/order\"\n"
        );
        for (step, timeout) in Step::ALL.into_iter().zip(timeouts) {
            // Attempts of a hasty step must not run out on a slow machine, those of a doubtful must.
            let attempts = if kind == "doubtful" { 2 } else { 1_000 };
            let own = call(step.command(Way::Do), timeout, attempts);
            let undo = call(step.command(Way::Undo), LONG, 1_000);
            text += &format!(
                "[[process.step]]\nname = \"{}\"\n{}\n[process.step.compensation]\n{}\n",
                step.name(),
                own.replace("RETRY", "process.step.retry"),
                undo.replace("RETRY", "process.step.compensation.retry"),
            );
        }
    }
    text
}

fn call(command: &str, timeout: &str, attempts: usize) -> String {
    format!(
        "destination = \"services\"\ncommand = \"{command}\"\n\
         payload = '{{\"order\": {{{{/input/order}}}}}}'\n\
         completed = \"{command}Done\"\nfailed = \"{command}Refused\"\nretryable = \"{command}Busy\"\n\
         timeout = \"{timeout}\"\n[RETRY]\nattempts = {attempts}\nfirst = \"10ms\"\nmax = \"2s\""
    )
}
