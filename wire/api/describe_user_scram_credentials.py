"""DescribeUserScramCredentials: which users may log in by SCRAM, and how (KIP-554)."""

from ottla.wire.schema import Message, array, int8, int16, int32, message, string, struct


@struct
class UserName:
    name: str = string()


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    """These users; null or none means all."""

    users: list[UserName] | None = array(UserName, null="0+")


@struct
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    """Mechanisms and iterations of each user, never a secret."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
