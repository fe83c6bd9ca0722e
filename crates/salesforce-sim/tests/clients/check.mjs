// jsforce, unmodified, against the simulator: its row, collection and bulk 2.0 calls.
// Usage: node check.mjs URL

import assert from 'node:assert/strict';
import jsforce from 'jsforce';

const url = process.argv[2];
const scheme = new URL(url).protocol;
const key = (name) => `js-${scheme.slice(0, -1)}-${name}`;

// Logging in: client credentials, user name and password, SOAP.
const oauth = new jsforce.Connection({
  loginUrl: url,
  oauth2: { loginUrl: url, clientId: 'client', clientSecret: 'secret' },
  version: '66.0',
});
const user = await oauth.authorize({ grant_type: 'client_credentials' });
assert.equal(user.organizationId.length, 18);
assert.equal(oauth.instanceUrl, url);

const password = new jsforce.Connection({
  oauth2: { loginUrl: url, clientId: 'client', clientSecret: 'secret' },
});
await password.login('joe@example.org', 'secret');
assert.ok(password.accessToken);

const soap = new jsforce.Connection({ loginUrl: url });
await soap.login('joe@example.org', 'secret');
assert.ok((await soap.limits()).DailyApiRequests.Remaining > 0);

const { accessToken, instanceUrl } = oauth;
const conn = new jsforce.Connection({ instanceUrl, accessToken, version: '66.0' });

// Discovery.
assert.ok((await conn.request('/services/data')).some((it) => it.version === '66.0'));
assert.ok((await conn.limits()).DailyBulkApiBatches.Max > 0);
assert.ok(conn.limitInfo.apiUsage.limit > 0, 'Sforce-Limit-Info');
const description = await conn.sobject('Contact').describe();
assert.ok(description.fields.some((field) => field.name === 'ExternalId__c' && field.externalId));
assert.equal((await conn.identity()).organization_id, user.organizationId);

// Rows by external id.
const Account = conn.sobject('Account');
const created = await Account.upsert({ ExternalId__c: key('row'), Name: 'Row' }, 'ExternalId__c');
assert.deepEqual([created.success, created.created], [true, true]);
const updated = await Account.upsert({ ExternalId__c: key('row'), Name: 'Row 2' }, 'ExternalId__c');
assert.deepEqual([updated.id, updated.created], [created.id, false]);
assert.equal((await Account.retrieve(created.id)).Name, 'Row 2');
await assert.rejects(Account.upsert({ ExternalId__c: key('bad') }, 'ExternalId__c'), {
  name: 'REQUIRED_FIELD_MISSING',
  message: 'Required fields are missing: [Name]',
});
await assert.rejects(Account.retrieve('001000000000000AAA'), { name: 'NOT_FOUND' });

// Collections.
const answers = await Account.upsert(
  [{ ExternalId__c: key('c1'), Name: 'C1' }, { ExternalId__c: key('c2') }],
  'ExternalId__c',
);
assert.deepEqual(answers.map((it) => it.success), [true, false]);
assert.equal(answers[1].errors[0].statusCode, 'REQUIRED_FIELD_MISSING');
const inserted = await conn.sobject('Contact').create([{ LastName: 'A' }, { LastName: 'B' }]);
assert.ok(inserted.every((it) => it.success));
const changes = inserted.map((it) => ({ Id: it.id, FirstName: 'F' }));
assert.ok((await conn.sobject('Contact').update(changes)).every((it) => it.success));
const gone = await conn.sobject('Contact').destroy(inserted.map((it) => it.id));
assert.ok(gone.every((it) => it.success));

// Queries.
const soql = `SELECT Id, Name FROM Account WHERE ExternalId__c IN ('${key('row')}', '${key('c1')}')`;
assert.deepEqual((await conn.query(soql)).records.map((it) => it.Name).sort(), ['C1', 'Row 2']);
const found = await Account.find({ ExternalId__c: key('row') }, ['Id', 'Name']).limit(1);
assert.equal(found[0].Id, created.id);

// Composite Graph, as a plain request.
const graph = await conn.requestPost('/services/data/v66.0/composite/graph', {
  graphs: [{
    graphId: 'g1',
    compositeRequest: [{
      method: 'PATCH',
      url: `/services/data/v66.0/sobjects/Account/ExternalId__c/${key('graph')}`,
      referenceId: 'a1',
      body: { Name: 'Graph' },
    }],
  }],
});
assert.equal(graph.graphs[0].isSuccessful, true);

// Bulk 2.0, step by step. Cells with every sign that jsforce splits at.
const tricky = 'a,b;c|d^e`f\tg "quoted"\nnew line \u{1F600}';
const job = conn.bulk2.createJob({
  object: 'Account', operation: 'upsert', externalIdFieldName: 'ExternalId__c',
});
await job.open();
await job.uploadData([
  { ExternalId__c: key('b1'), Name: tricky, Phone: null },
  { ExternalId__c: key('b2'), Name: null, Phone: '1' },
]);
await job.close();
await job.poll(50, 30000);
assert.equal((await job.check()).state, 'JobComplete');
const results = await job.getAllResults();
assert.equal(results.successfulResults.length, 1);
assert.equal(results.successfulResults[0].sf__Created, 'true');
assert.equal(results.successfulResults[0].Name, tricky);
assert.equal(results.failedResults.length, 1);
assert.equal(
  results.failedResults[0].sf__Error,
  'REQUIRED_FIELD_MISSING:Required fields are missing: [Name]:Name --',
);
assert.equal(results.failedResults[0].ExternalId__c, key('b2'));
assert.deepEqual(results.unprocessedRecords, []);
await job.delete();
await assert.rejects(job.check(), { name: 'NOT_FOUND' });

// Bulk 2.0, at once: more rows than one batch has.
const rows = Array.from({ length: 12000 }, (_, n) => `${key(`many${n}`)},Many ${n}\n`);
const input = `ExternalId__c,Name\n${rows.join('')}`;
conn.bulk2.pollInterval = 100;
const many = await conn.bulk2.loadAndWaitForResults({
  object: 'Account', operation: 'upsert', externalIdFieldName: 'ExternalId__c', input,
});
assert.equal(many.successfulResults.length, 12000);
assert.deepEqual([many.failedResults, many.unprocessedRecords], [[], []]);

// Bulk query, as a stream of records.
const stream = await conn.bulk2.query(
  `SELECT Id, Name FROM Account WHERE ExternalId__c LIKE '${key('many')}%'`,
);
const queried = await stream.toArray();
assert.equal(queried.length, 12000);
assert.ok(queried.every((it) => it.Id.length === 18 && it.Name.startsWith('Many ')));

// Nothing at all is a complete job.
const empty = conn.bulk2.createJob({ object: 'Account', operation: 'insert' });
await empty.open();
await empty.uploadData('');
await empty.close();
await empty.poll(50, 30000);
assert.deepEqual((await empty.getAllResults()).successfulResults, []);

// An abort, a job that fails, and one that lists among the others.
const aborted = conn.bulk2.createJob({ object: 'Account', operation: 'insert' });
await aborted.open();
await aborted.abort();
await assert.rejects(aborted.poll(50, 30000), /abort/i);
const broken = conn.bulk2.createJob({ object: 'Account', operation: 'insert' });
await broken.open();
await broken.uploadData('Name,Nope__c\nA,B\n');
await broken.close();
await assert.rejects(broken.poll(50, 30000), /Field name not found : Nope__c/);
const list = await conn.request('/services/data/v66.0/jobs/ingest');
assert.ok(list.records.some((it) => it.id === broken.id && it.state === 'Failed'));

// The version jsforce takes by itself, and a session that has ended.
const old = new jsforce.Connection({ instanceUrl, accessToken });
assert.ok((await old.sobject('Account').upsert({ ExternalId__c: key('old'), Name: 'O' }, 'ExternalId__c')).success);
await oauth.logout();
await assert.rejects(conn.limits(), { errorCode: 'INVALID_SESSION_ID' });

console.log(`jsforce: everything works over ${scheme}`);
