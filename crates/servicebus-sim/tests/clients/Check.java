// Sends and receives through the simulator with Microsoft's client, unmodified.
// Arguments: a connection string, and one with a wrong key.

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;

public class Check {
  static String connection;

  static ServiceBusClientBuilder client() {
    AmqpRetryOptions retry = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(20));
    return new ServiceBusClientBuilder().connectionString(connection).retryOptions(retry);
  }

  static void check(boolean holds, String what) {
    if (!holds) throw new IllegalStateException(what);
    System.out.println("ok: " + what);
  }

  static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
    List<ServiceBusReceivedMessage> all = new ArrayList<>();
    for (int tries = 0; all.size() < count && tries < 20; tries++) {
      receiver.receiveMessages(count - all.size(), Duration.ofSeconds(3)).forEach(all::add);
    }
    return all;
  }

  static ServiceBusMessage message(String id, String body) {
    return new ServiceBusMessage(body).setMessageId(id);
  }

  static void queue() {
    ServiceBusSenderClient sender = client().sender().queueName("orders").buildClient();
    ServiceBusMessage first = message("m-1", "{\"n\": 1}").setSubject("OrderCreated");
    first.setContentType("application/json").setCorrelationId("c-1");
    first.getApplicationProperties().put("tenant", "acme");
    sender.sendMessage(first);
    List<ServiceBusMessage> batch = new ArrayList<>();
    for (int n = 2; n <= 5; n++) batch.add(message("m-" + n, "{\"n\": " + n + "}"));
    sender.sendMessages(batch);
    sender.close();

    ServiceBusReceiverClient receiver = client().receiver().queueName("orders").buildClient();
    List<ServiceBusReceivedMessage> got = receive(receiver, 5);
    check(got.size() == 5, "five messages arrive");
    ServiceBusReceivedMessage one = got.get(0);
    check(one.getMessageId().equals("m-1") && one.getSubject().equals("OrderCreated"), "id and subject");
    check("application/json".equals(one.getContentType()) && "c-1".equals(one.getCorrelationId()), "properties");
    check("acme".equals(one.getApplicationProperties().get("tenant")), "application properties");
    check(one.getBody().toString().equals("{\"n\": 1}"), "body");
    check(one.getSequenceNumber() > 0 && one.getLockedUntil() != null, "sequence number and lock");
    for (int n = 0; n < 5; n++) check(got.get(n).getMessageId().equals("m-" + (n + 1)), "in order: " + n);
    receiver.complete(got.get(0));
    receiver.abandon(got.get(1));
    receiver.deadLetter(got.get(2), new DeadLetterOptions().setDeadLetterReason("bad").setDeadLetterErrorDescription("why"));
    receiver.complete(got.get(3));
    receiver.complete(got.get(4));
    List<ServiceBusReceivedMessage> again = receive(receiver, 1);
    check(again.size() == 1 && again.get(0).getMessageId().equals("m-2"), "an abandoned message arrives again");
    check(again.get(0).getDeliveryCount() == 1, "its delivery is counted");
    receiver.complete(again.get(0));
    receiver.close();

    ServiceBusReceiverClient dead =
        client().receiver().queueName("orders").subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient();
    List<ServiceBusReceivedMessage> letters = receive(dead, 1);
    check(letters.size() == 1 && letters.get(0).getMessageId().equals("m-3"), "a dead letter");
    check("bad".equals(letters.get(0).getDeadLetterReason()), "its reason");
    dead.complete(letters.get(0));
    dead.close();
  }

  static void expiredLock() {
    ServiceBusSenderClient sender = client().sender().queueName("short").buildClient();
    sender.sendMessage(message("s-1", "{}"));
    sender.close();
    ServiceBusReceiverClient receiver =
        client().receiver().queueName("short").maxAutoLockRenewDuration(Duration.ZERO).buildClient();
    ServiceBusReceivedMessage first = receive(receiver, 1).get(0);
    List<ServiceBusReceivedMessage> again = receive(receiver, 1);
    check(again.size() == 1 && again.get(0).getMessageId().equals("s-1"), "an expired lock: it arrives again");
    boolean refused = false;
    try {
      receiver.complete(first);
    } catch (RuntimeException lost) {
      refused = true;
    }
    check(refused, "a lost lock cannot be completed");
    receiver.complete(receive(receiver, 0).isEmpty() ? again.get(0) : first);
    receiver.close();
  }

  static void scheduledAndOnce() {
    ServiceBusSenderClient sender = client().sender().queueName("once").buildClient();
    OffsetDateTime later = OffsetDateTime.now().plusSeconds(2);
    sender.sendMessage(message("later", "{}").setScheduledEnqueueTime(later));
    sender.sendMessage(message("now", "{}"));
    sender.sendMessage(message("now", "{}"));
    sender.close();
    ServiceBusReceiverClient receiver = client().receiver().queueName("once").buildClient();
    List<ServiceBusReceivedMessage> got = receive(receiver, 2);
    check(got.size() == 2 && got.get(0).getMessageId().equals("now"), "a duplicate is stored once");
    check(got.get(1).getMessageId().equals("later"), "a scheduled message arrives later");
    check(!OffsetDateTime.now().isBefore(later.minusSeconds(1)), "not before its time");
    got.forEach(receiver::complete);
    receiver.close();
  }

  static void sessions() {
    ServiceBusSenderClient sender = client().sender().queueName("sessions").buildClient();
    for (int n = 0; n < 6; n++) sender.sendMessage(message("n-" + n, "{}").setSessionId("s-" + n % 2));
    sender.close();
    for (int session = 0; session < 2; session++) {
      ServiceBusReceiverClient receiver =
          client().sessionReceiver().queueName("sessions").buildClient().acceptNextSession();
      List<ServiceBusReceivedMessage> got = receive(receiver, 3);
      check(got.size() == 3, "a session has its messages");
      for (int n = 0; n < 3; n++) {
        int number = Integer.parseInt(got.get(n).getMessageId().substring(2));
        check(got.get(n).getSessionId().equals(receiver.getSessionId()), "of one session");
        check(number / 2 == n, "in order");
      }
      got.forEach(receiver::complete);
      receiver.close();
    }
  }

  static void topic() {
    ServiceBusSenderClient sender = client().sender().topicName("events").buildClient();
    sender.sendMessage(message("t-1", "{}"));
    sender.close();
    for (String name : List.of("all", "audit")) {
      ServiceBusReceiverClient receiver =
          client().receiver().topicName("events").subscriptionName(name).buildClient();
      List<ServiceBusReceivedMessage> got = receive(receiver, 1);
      check(got.size() == 1 && got.get(0).getMessageId().equals("t-1"), "subscription " + name);
      receiver.complete(got.get(0));
      receiver.close();
    }
  }

  static void refused(String wrong) {
    String right = connection;
    for (String[] one : new String[][] {{wrong, "orders"}, {right, "missing"}}) {
      connection = one[0];
      boolean refused = false;
      try {
        ServiceBusSenderClient sender = client().sender().queueName(one[1]).buildClient();
        sender.sendMessage(message("x", "{}"));
      } catch (RuntimeException error) {
        refused = true;
      }
      check(refused, "refused: " + (one[0].equals(wrong) ? "a wrong key" : "an unknown queue"));
    }
    connection = right;
  }

  public static void main(String[] arguments) {
    connection = arguments[0];
    queue();
    scheduledAndOnce();
    sessions();
    topic();
    expiredLock();
    refused(arguments[1]);
    System.out.println("done");
    System.exit(0);
  }
}
