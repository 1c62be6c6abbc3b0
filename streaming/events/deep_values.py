"""What `decode --deep` adds: the clients' own bytes inside a record, as JSON.

Field names are Kafka's, and a field that the bytes' version does not have is left
out, as in a record's own fields.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from streaming.events import client_protocols
from streaming.events.offsets_fields import GROUP_METADATA_TYPE
from streaming.events.offsets_wire import WireError


def deep_value(key_type: int, value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Give a record's value with the bytes of its clients decoded beside them.

    Members of type 2 get subscriptionDecoded and assignmentDecoded by protocolType
    (null for no bytes or another protocol type); classic members of a KIP-848 group
    (type 5) get metadataDecoded in each supported protocol. Bytes that
    cannot be read give `{"error": ...}` there.
    """
    if value is None:
        return None
    if key_type == GROUP_METADATA_TYPE:
        protocol_type, protocol = value["protocolType"], value["protocol"] or ""
        members = [
            {
                **member,
                "subscriptionDecoded": _deep_subscription(protocol_type, protocol, member["subscription"]),
                "assignmentDecoded": _deep_assignment(protocol_type, protocol, member["assignment"]),
            }
            for member in value["members"]
        ]
        return {**value, "members": members}
    classic = value.get("classicMemberMetadata")
    if classic is None:
        return value
    protocols = [
        {**entry, "metadataDecoded": _deep_subscription("consumer", entry["name"], entry["metadata"])}
        for entry in classic["supportedProtocols"]
    ]
    return {**value, "classicMemberMetadata": {**classic, "supportedProtocols": protocols}}


def _deep_subscription(protocol_type: str, protocol: str, text: str) -> dict[str, Any] | None:
    raw = b64decode(text)
    if not raw:
        return None
    try:
        if protocol_type == "consumer":
            return _subscription_json(protocol, client_protocols.decode_subscription(raw))
        if protocol_type == "connect":
            return _metadata_json(client_protocols.decode_connect_metadata(raw))
    except WireError as error:
        return {"error": str(error)}
    return None


def _deep_assignment(protocol_type: str, protocol: str, text: str) -> dict[str, Any] | None:
    raw = b64decode(text)
    try:
        if protocol_type == "consumer":
            given = client_protocols.decode_consumer_assignment(raw)
            return (
                None
                if given is None
                else {
                    "version": given.version,
                    "assignedPartitions": _lists_json(given.partitions),
                    **_user_data_json(protocol, given.user_data),
                }
            )
        if protocol_type == "connect":
            return _connect_json(client_protocols.decode_connect_assignment(raw))
    except WireError as error:
        return {"error": str(error)}
    return None


def _subscription_json(protocol: str, subscription: client_protocols.ConsumerSubscription) -> dict[str, Any]:
    """Write a subscription with Kafka's field names, only those that its version has."""
    answer = {
        "version": subscription.version,
        "topics": list(subscription.topics),
        **_user_data_json(protocol, subscription.user_data),
    }
    if subscription.version >= 1:
        answer["ownedPartitions"] = _lists_json(subscription.owned_partitions)
    if subscription.version >= 2:
        answer["generationId"] = subscription.generation_id
    if subscription.version >= 3:
        answer["rackId"] = subscription.rack_id
    return answer


def _user_data_json(protocol: str, raw: bytes | None) -> dict[str, Any]:
    decoded = client_protocols.decode_user_data(protocol, raw)
    answer: dict[str, Any] = {"userData": None if raw is None else b64encode(raw).decode()}
    if decoded is not None:
        answer["userDataDecoded"] = {"layout": decoded.layout, "generation": decoded.generation_id}
        if decoded.owned_partitions is not None:
            answer["userDataDecoded"]["previousAssignment"] = _lists_json(decoded.owned_partitions)
    return answer


def _metadata_json(metadata: client_protocols.ConnectMetadata) -> dict[str, Any]:
    answer = {
        "version": metadata.version,
        "url": metadata.url,
        "configOffset": metadata.config_offset,
    }
    if metadata.version >= 1:
        answer["allocation"] = _connect_json(metadata.allocation)
    return answer


def _connect_json(given: client_protocols.ConnectAssignment | None) -> dict[str, Any] | None:
    if given is None:
        return None
    answer = {
        "version": given.version,
        "error": given.error,
        "leader": given.leader_id,
        "leaderUrl": given.leader_url,
        "configOffset": given.config_offset,
        "assignment": _lists_json(given.assigned, "connector", "tasks"),
    }
    if given.version >= 1:
        answer |= {
            "revoked": _lists_json(given.revoked, "connector", "tasks"),
            "delay": given.delay_ms,
        }
    return answer


def _lists_json(
    lists: client_protocols.TopicPartitionLists, key: str = "topic", items: str = "partitions"
) -> list[dict[str, Any]]:
    return [{key: name, items: list(numbers)} for name, numbers in lists]
