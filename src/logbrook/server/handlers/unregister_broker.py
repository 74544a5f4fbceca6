"""UnregisterBroker: remove a broker from the cluster's metadata (KIP-500). A running one is refused.

Kafka unregisters even its only broker while it runs. DescribeCluster then has no broker, so clients cannot use it.
"""

from logbrook.core.acls import AclOperation
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from logbrook.server.api import Api, RequestContext
from logbrook.server.errors import errors_in
from logbrook.server.services import Services


async def handle(
    services: Services, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    refusal = services.authorizer.cluster_refusal(context, AclOperation.ALTER)
    if refusal is not None:
        return UnregisterBrokerResponse(error_code=refusal.code, error_message=str(refusal))
    if services.cluster_admin is not None:
        response = UnregisterBrokerResponse()
        with errors_in(response):
            await services.cluster_admin.unregister(BrokerId(request.broker_id))
        return response
    if request.broker_id not in [broker.broker_id for broker in services.view.brokers()]:
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        message = f"broker {request.broker_id} is not registered"
    else:
        code = ErrorCode.INVALID_REQUEST
        message = f"broker {request.broker_id} cannot be unregistered: it is running"
    return UnregisterBrokerResponse(error_code=code, error_message=message)


API = Api(UnregisterBrokerRequest, UnregisterBrokerResponse, handle)
