"""simple-salesforce, unmodified, against the simulator: its row, collection and bulk 2.0 calls.

It only speaks https, and logs in only at hosts of Salesforce: an adapter of requests leads those to
the simulator. Usage: check.py HTTPS_URL CA_FILE
"""

import json
import sys
import tempfile
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from simple_salesforce import Salesforce, SalesforceLogin
from simple_salesforce.exceptions import (
    SalesforceExpiredSession,
    SalesforceMalformedRequest,
    SalesforceResourceNotFound,
)

URL, CA = sys.argv[1], sys.argv[2]


class Redirected(HTTPAdapter):
    """Sends what is meant for Salesforce to the simulator."""

    def send(self, request, **kwargs):
        parts = urlsplit(request.url)
        request.url = request.url.replace(f"{parts.scheme}://{parts.netloc}", URL, 1)
        request.headers["Host"] = urlsplit(URL).netloc
        return super().send(request, **kwargs)


def session():
    made = requests.Session()
    made.trust_env = False
    made.verify = CA
    made.mount("https://sim.my.salesforce.com", Redirected())
    made.mount("https://login.salesforce.com", Redirected())
    return made


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def key(name):
    return f"py-{name}"


# Logging in: client credentials (HTTP Basic), then SOAP with user name and password.
sf = Salesforce(
    consumer_key="client",
    consumer_secret="secret",
    domain="sim.my",
    session=session(),
    version="66.0",
)
assert sf.sf_instance == urlsplit(URL).netloc, sf.sf_instance
token, instance = SalesforceLogin(
    username="joe@example.org", password="secret", security_token="T", session=session()
)
assert token.startswith("00D") and instance == urlsplit(URL).netloc, instance

# Discovery and limits.
assert sf.limits()["DailyApiRequests"]["Remaining"] > 0
assert sf.api_usage["api-usage"].total > 0, sf.api_usage
fields = {field["name"]: field for field in sf.Contact.describe()["fields"]}
assert fields["ExternalId__c"]["externalId"]
assert {"Account", "Contact", "Block__c"} <= {it["name"] for it in sf.describe()["sobjects"]}

# Rows by external id and by id.
assert sf.Account.upsert(f"ExternalId__c/{key('row')}", {"Name": "Row"}) == 201
assert sf.Account.upsert(f"ExternalId__c/{key('row')}", {"Name": "Row 2"}) == 200
row = sf.Account.get_by_custom_id("ExternalId__c", key("row"))
assert row["Name"] == "Row 2"
assert sf.Account.update(row["Id"], {"Phone": "1"}) == 204
made = sf.Contact.create({"LastName": "L"})
assert made["success"] and sf.Contact.delete(made["id"]) == 204
error = raises(SalesforceMalformedRequest, lambda: sf.Account.create({"Phone": "1"}))
assert error.content[0]["errorCode"] == "REQUIRED_FIELD_MISSING"
raises(SalesforceResourceNotFound, lambda: sf.Account.get("001000000000000AAA"))

# Collections.
kind = {"type": "Account"}
records = [
    {"attributes": kind, "ExternalId__c": key("c1"), "Name": "C1"},
    {"attributes": kind, "ExternalId__c": key("c2")},
]
answers = sf.restful(
    "composite/sobjects/Account/ExternalId__c",
    method="PATCH",
    data=json.dumps({"allOrNone": False, "records": records}),
)
assert [it["success"] for it in answers] == [True, False], answers

# Queries.
query = f"SELECT Id, Name FROM Account WHERE ExternalId__c = '{key('c1')}'"
assert sf.query(query)["records"][0]["Name"] == "C1"

# Bulk 2.0 from records and from a file's text.
done = sf.bulk2.Account.upsert(
    records=[
        {"ExternalId__c": key("b1"), "Name": 'a,b "quoted"', "Phone": "#N/A"},
        {"ExternalId__c": key("b2"), "Name": "", "Phone": "1"},
    ],
    external_id_field="ExternalId__c",
    wait=1,
)
job = done[0]["job_id"]
assert (done[0]["numberRecordsProcessed"], done[0]["numberRecordsFailed"]) == (2, 1), done
successful = sf.bulk2.Account.get_successful_records(job)
assert '"a,b ""quoted"""' in successful, successful
failed = sf.bulk2.Account.get_failed_records(job)
expected = "REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --"
assert expected in failed and key("b2") in failed, failed
unprocessed = sf.bulk2.Account.get_unprocessed_records(job)
assert sorted(unprocessed.strip().split(",")) == ["ExternalId__c", "Name", "Phone"], unprocessed
every = sf.bulk2.Account.get_all_ingest_records(job)
assert [len(every[name]) for name in every] == [1, 1, 0], every

rows = "".join(f"{key(f'many{n}')},Many {n}\n" for n in range(12000))
with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as file:
    file.write("ExternalId__c,Name\n" + rows)
    file.flush()
    done = sf.bulk2.Account.upsert(file.name, external_id_field="ExternalId__c", wait=1)
assert sum(it["numberRecordsProcessed"] for it in done) == 12000, done
assert sum(it["numberRecordsFailed"] for it in done) == 0, done

ids = [it["Id"] for it in sf.query_all(
    f"SELECT Id FROM Account WHERE ExternalId__c LIKE '{key('many')}1%'"
)["records"]]
assert len(ids) > 2000, len(ids)
done = sf.bulk2.Account.delete(records=[{"Id": it} for it in ids[:3]], wait=1)
assert done[0]["numberRecordsFailed"] == 0, done

# Bulk query, in pages.
pages = list(sf.bulk2.Account.query(
    f"SELECT Id, Name FROM Account WHERE ExternalId__c LIKE '{key('many')}%'", max_records=5000
))
assert len(pages) == 3, len(pages)
assert all(page.splitlines()[0] == '"Id","Name"' for page in pages), pages[0][:80]
assert sum(len(page.splitlines()) - 1 for page in pages) == 12000 - 3

# A job that fails, and a session that has ended.
bad = [{"ExternalId__c": key("x"), "Nope__c": "1"}]
error = raises(
    Exception,
    lambda: sf.bulk2.Account.upsert(records=bad, external_id_field="ExternalId__c", wait=1),
)
assert "Field name not found : Nope__c" in str(error), error
late = Salesforce(session_id="gone", instance_url=URL, session=session(), version="66.0")
raises(SalesforceExpiredSession, late.limits)

print("simple-salesforce: everything works over https:")
