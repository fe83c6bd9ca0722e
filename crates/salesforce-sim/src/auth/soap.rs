//! `login()` of the SOAP API, for old clients only.

use super::{org_id, token::log_in};
use crate::{
    http::call::HttpCall,
    org::SimulatedOrg,
    page::escaped,
    reply::{ApiReply, XML},
};

pub(super) fn login(sim: &SimulatedOrg, call: &HttpCall, body: &[u8]) -> ApiReply {
    let text = String::from_utf8_lossy(body);
    let given = |name| element(&text, name).unwrap_or_default();
    let Ok(name) = log_in(&sim.auth, &given("username"), &given("password")) else {
        let message = "INVALID_LOGIN: Invalid username, password, security token; or user locked \
                       out.";
        return ApiReply::text(500, XML, envelope(&fault(message)));
    };
    let mut org = sim.org();
    let now = org.now();
    let (token, user) = org.sessions.start(&name, now);
    let server = format!("{}{}/{}", call.base, call.path.trim_end_matches('/'), org_id());
    let result = format!(
        "<loginResponse><result><metadataServerUrl>{server}</metadataServerUrl>\
         <passwordExpired>false</passwordExpired><sandbox>false</sandbox>\
         <serverUrl>{server}</serverUrl><sessionId>{token}</sessionId><userId>{user}</userId>\
         <userInfo><organizationId>{org_id}</organizationId><userId>{user}</userId>\
         <userName>{name}</userName><sessionSecondsValid>{seconds}</sessionSecondsValid>\
         </userInfo></result></loginResponse>",
        server = escaped(&server),
        org_id = org_id(),
        name = escaped(&name),
        seconds = sim.auth.session_seconds,
    );
    ApiReply::text(200, XML, envelope(&result))
}

fn envelope(inner: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns=\"urn:partner.soap.sforce.com\" xmlns:sf=\"urn:fault.partner.soap.sforce.com\">\
         <soapenv:Body>{inner}</soapenv:Body></soapenv:Envelope>"
    )
}

fn fault(message: &str) -> String {
    let (code, text) = message.split_once(": ").unwrap_or(("UNKNOWN", message));
    format!(
        "<soapenv:Fault><faultcode>sf:{code}</faultcode><faultstring>{message}</faultstring>\
         <detail><sf:LoginFault><sf:exceptionCode>{code}</sf:exceptionCode>\
         <sf:exceptionMessage>{text}</sf:exceptionMessage></sf:LoginFault></detail>\
         </soapenv:Fault>"
    )
}

/// Returns the text of the first element with this local name. Sufficient for the one supported
/// request.
fn element(xml: &str, name: &str) -> Option<String> {
    let opened = |at: &usize| {
        let before = xml[..*at].chars().next_back();
        matches!(before, Some('<' | ':')) && xml[*at + name.len()..].starts_with(['>', ' '])
    };
    let at = xml.match_indices(name).map(|(at, _)| at).find(opened)?;
    let start = at + xml[at..].find('>')? + 1;
    let text = &xml[start..start + xml[start..].find("</")?];
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    Some(plain.replace("&#39;", "'").replace("&apos;", "'").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_with_and_without_prefix() {
        let xml = "<n1:login><n1:username>a&amp;b@x.org</n1:username>\
                   <password>p&lt;1</password></n1:login>";
        assert_eq!(element(xml, "username").unwrap(), "a&b@x.org");
        assert_eq!(element(xml, "password").unwrap(), "p<1");
        assert_eq!(element(xml, "word"), None);
        assert_eq!(element("<password", "password"), None);
    }
}
