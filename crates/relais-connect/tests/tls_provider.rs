//! Clients bring their own TLS provider: that of the process is left to the program.
//!
//! In a test program of its own, because the provider of a process is set once.

#![cfg(any(feature = "http", feature = "kafka", feature = "salesforce"))]

use rustls::crypto::CryptoProvider;

#[test]
fn no_client_installs_a_tls_provider_for_the_process() {
    assert!(CryptoProvider::get_default().is_none(), "the test is void");
    #[cfg(feature = "http")]
    for url in ["https://target.example/in", "http://target.example/in"] {
        use relais_connect::http::{HttpPublisher, HttpPublisherSettings};
        HttpPublisher::new(HttpPublisherSettings::new(url)).unwrap();
        assert!(CryptoProvider::get_default().is_none(), "the HTTP publisher for {url}");
    }
    #[cfg(feature = "kafka")]
    for url in ["https://registry.example", "http://registry.example"] {
        use relais_connect::kafka::{SchemaRegistry, SchemaRegistrySettings};
        SchemaRegistry::new(&SchemaRegistrySettings::new(url)).unwrap();
        assert!(CryptoProvider::get_default().is_none(), "the schema registry at {url}");
    }
    #[cfg(feature = "salesforce")]
    {
        use relais_connect::salesforce::{Auth, SalesforceCollections, SalesforceSettings};
        let login = Auth::ClientCredentials { client_id: "app".into(), client_secret: "s".into() };
        let url = "https://login.salesforce.com";
        let mut settings = SalesforceSettings::new(url, login, "Contact", "ExternalId__c");
        settings.columns = vec![("LastName".into(), "/name".into())];
        SalesforceCollections::new(settings, None).unwrap();
        assert!(CryptoProvider::get_default().is_none(), "the client of Salesforce");
    }
}
