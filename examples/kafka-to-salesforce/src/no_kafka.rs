//! Kafka in a build without it: there is none.

/// Never made.
pub(crate) struct Topic {
    pub(crate) brokers: String,
    pub(crate) name: String,
}

impl Topic {
    pub(crate) async fn create(_brokers: &str) -> anyhow::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) async fn send(&self, _id: &str, _body: &str) -> anyhow::Result<()> {
        Ok(())
    }

    pub(crate) async fn delete(self) {}
}
