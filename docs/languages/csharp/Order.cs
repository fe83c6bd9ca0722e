// Writes an order and its message in one transaction: dotnet run ID TOTAL [fail]
// DATABASE, for example Host=localhost;Database=shop;Username=shop, says where. Needs the package Npgsql.

using System.Text.Json;
using Npgsql;

var (orderId, total, fail) = (args[0], long.Parse(args[1]), args.Length > 2);
await using var dataSource = NpgsqlDataSource.Create(Environment.GetEnvironmentVariable("DATABASE")!);

await using var connection = await dataSource.OpenConnectionAsync();
await using var transaction = await connection.BeginTransactionAsync();

await using (var order = new NpgsqlCommand(
    "INSERT INTO orders (id, total) VALUES ($1, $2)", connection, transaction))
{
    order.Parameters.Add(new() { Value = orderId });
    order.Parameters.Add(new() { Value = total });
    await order.ExecuteNonQueryAsync();
}

await using (var message = new NpgsqlCommand(
    """
    INSERT INTO relais_outbox (aggregate_type, aggregate_id, event_type, destination, payload)
    VALUES ('Order', $1, 'OrderCreated', 'orders', $2)
    """, connection, transaction))
{
    message.Parameters.Add(new() { Value = orderId });                                            // a string
    message.Parameters.Add(new() { Value = JsonSerializer.Serialize(new { orderId, total }) });   // a string
    await message.ExecuteNonQueryAsync();
}

if (fail) throw new InvalidOperationException("the order cannot be placed");
await transaction.CommitAsync();   // leaving without it rolls back
